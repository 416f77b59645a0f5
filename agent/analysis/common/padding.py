"""What stands behind an array's end in a tile, and what arithmetic makes of it.

A load pads with zeros, or with the least number there is. Zeros stay zeros through products and
differences of padded tiles, and a sum over them is the sum of the array; of `exp(x)` or `x - mean`
it is not. What is masked by an element's number is what the mask says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

import libcst as cst

BOUNDLESS = 1e4
"""From here on a number stands for infinity: its exponential is zero or infinite in any type."""


class Pad(Enum):
    """What a value has along the axis, behind the array's end."""

    NONE = "no elements along it: the same number, or a tile without that axis"
    WHOLE = "none: a tile that is known to have other axes only"
    ACROSS = "none: element numbers along another axis"
    SIZE = "none: the tile size itself"
    INDEX = "element numbers along it, which are past the end there"
    WRAPPED = "element numbers along it, which begin again or stay at the last one there"
    SUM = "what all rounds put together, element by element"
    ZERO = "zeros, or what is false"
    PAST = "what is true there, as `index >= length` is"
    LOW = "less than any number"
    HIGH = "more than any number"
    LAST = "what the last element before the end has"
    MASKED = "a number that a mask chooses"
    OTHER = "anything"


FLAT = frozenset({Pad.NONE, Pad.WHOLE, Pad.ACROSS, Pad.SIZE})
_BELOW = (cst.LessThan, cst.LessThanEqual)
_ABOVE = (cst.GreaterThan, cst.GreaterThanEqual)
_LIMITS = {Pad.LOW: Pad.HIGH, Pad.HIGH: Pad.LOW}


@dataclass(frozen=True)
class Padded:
    """A value as far as its padding goes."""

    kind: Pad
    bound: bool = False
    """A comparison with a length made it so."""
    positive: bool = False
    """No element of it is below zero."""
    value: float | None = None
    """The number that it is, or that it begins with."""

    @property
    def flat(self) -> bool:
        """Whether it has no padded elements."""
        return self.kind in FLAT

    @property
    def filled(self) -> Padded:
        """What stands in a tile where a mask puts it."""
        if self.value is None:
            return Padded(Pad.MASKED) if self.flat else self
        if math.isnan(self.value):
            return OTHER
        if self.value == 0:
            return Padded(Pad.ZERO, positive=True)
        if abs(self.value) >= BOUNDLESS:
            return Padded(Pad.HIGH if self.value > 0 else Pad.LOW)
        return Padded(Pad.MASKED, positive=self.value > 0)


NONE, OTHER, ZERO = Padded(Pad.NONE), Padded(Pad.OTHER), Padded(Pad.ZERO)
INDEX, ACROSS, SIZE = Padded(Pad.INDEX), Padded(Pad.ACROSS), Padded(Pad.SIZE)
WRAPPED = Padded(Pad.WRAPPED)


def number(value: float) -> Padded:
    """A number as it is written."""
    return Padded(Pad.NONE, positive=value >= 0, value=value)


def together(*values: Padded) -> Padded:
    """Of values that are used for one thing, as the parts of a tuple are."""
    found = NONE
    for value in values:
        if Pad.OTHER in (found.kind, value.kind):
            return OTHER
        if Pad.INDEX in (found.kind, value.kind):
            found = INDEX
        elif found.flat or found.kind is value.kind:
            found = replace(value, value=None)
        elif not value.flat:
            return OTHER
    return found


def either(one: Padded, other: Padded) -> Padded:
    """What a name has behind branches, or a round."""
    if one.kind is other.kind:
        value = one.value if one.value == other.value else None
        positive = one.positive and other.positive
        return Padded(one.kind, one.bound and other.bound, positive, value)
    for a, b in ((one, other), (other, one)):
        if a.flat or (a.kind is Pad.SUM and b.kind in (Pad.ZERO, Pad.LOW, Pad.HIGH)):
            kept = Pad.SUM if a.kind is Pad.SUM else b.kind
            return Padded(kept, a.flat and b.bound, positive=a.positive and b.positive)
    return OTHER


def _result(kind: Pad, *of: Padded, positive: bool = False) -> Padded:
    bound = kind not in FLAT and any(value.bound for value in of)
    return Padded(kind, bound, positive)


def _alike(one: Padded, other: Padded) -> Padded | None:
    """What any arithmetic makes of values without padding, and of masked ones."""
    if Pad.MASKED in (one.kind, other.kind):
        return _result(Pad.MASKED, one, other)
    if one.flat and other.flat:
        for kind in (Pad.WHOLE, Pad.ACROSS):
            if kind in (one.kind, other.kind):
                return Padded(kind)
        return NONE
    if one.kind is other.kind is Pad.SUM:
        return one if one.positive and other.positive else Padded(Pad.SUM)
    for kind in (Pad.INDEX, Pad.WRAPPED):
        if kind in (one.kind, other.kind) and all(
            value.flat or value.kind in (Pad.INDEX, Pad.WRAPPED) for value in (one, other)
        ):
            return Padded(kind)
    return None


def plus(one: Padded, other: Padded) -> Padded:
    """A sum."""
    if (found := _alike(one, other)) is not None:
        return found
    positive = one.positive and other.positive
    for a, b in ((one, other), (other, one)):
        if a.kind in _LIMITS:
            return OTHER if b.kind is _LIMITS[a.kind] else _result(a.kind, a, b)
        if b.kind is Pad.ZERO and a.kind in (Pad.SUM, Pad.ZERO, Pad.WHOLE):
            return _result(a.kind, a, b, positive=positive)
        if a.value == 0 and b.kind in (Pad.SUM, Pad.ZERO):
            return _result(b.kind, a, b, positive=positive)
    return OTHER


def minus(one: Padded, other: Padded) -> Padded:
    """A difference."""
    if one.kind is Pad.SUM and other.flat:
        return Padded(Pad.SUM)
    return replace(plus(one, negative(other)), positive=False)


def negative(value: Padded) -> Padded:
    """The negative."""
    number = None if value.value is None else -value.value
    return Padded(_LIMITS.get(value.kind, value.kind), value.bound, value=number)


def times(one: Padded, other: Padded) -> Padded:
    """A product: what is zero or false stays so."""
    if (found := _alike(one, other)) is not None:
        return replace(found, positive=one.positive and other.positive)
    positive = one.positive and other.positive
    for a, b in ((one, other), (other, one)):
        if a.kind is Pad.ZERO:
            return OTHER if b.kind in _LIMITS else _result(Pad.ZERO, a, b, positive=positive)
        if a.kind in _LIMITS and b.flat:
            return negative(a) if b.value is not None and b.value < 0 else a
        if a.kind is Pad.SUM and b.flat:
            return _result(Pad.SUM, positive=positive)
    return OTHER


def over(one: Padded, other: Padded) -> Padded:
    """A quotient, or what is left of one."""
    if (found := _alike(one, other)) is not None:
        return replace(found, positive=one.positive and other.positive)
    if one.kind in (Pad.ZERO, Pad.SUM, *_LIMITS) and (other.flat or one.kind is Pad.ZERO):
        return _result(one.kind, one, positive=one.positive and other.positive)
    return OTHER


def modulo(one: Padded, other: Padded) -> Padded:
    """A remainder: element numbers begin again where a length divides them."""
    if one.kind in (Pad.INDEX, Pad.WRAPPED) and other.flat:
        return WRAPPED
    return over(one, other)


def conjunction(one: Padded, other: Padded) -> Padded:
    """`a & b`: false where one is."""
    if Pad.ZERO in (one.kind, other.kind):
        return _result(Pad.ZERO, *(v for v in (one, other) if v.kind is Pad.ZERO), positive=True)
    return _alike(one, other) or (one if one.kind is other.kind else OTHER)


def disjunction(one: Padded, other: Padded) -> Padded:
    """`a | b`: `(index < length) | EVEN` is taken at its word."""
    for a, b in ((one, other), (other, one)):
        if a.kind is Pad.PAST or (a.kind is Pad.ZERO and (b.flat or b.kind is Pad.ZERO)):
            return a
    return _alike(one, other) or OTHER


def inverse(value: Padded) -> Padded:
    """`~a`."""
    turned = {Pad.ZERO: Pad.PAST, Pad.PAST: Pad.ZERO}
    return replace(value, kind=turned[value.kind]) if value.kind in turned else value


def limited(one: Padded, other: Padded, *, above: bool) -> Padded:
    """The lesser of two, or the greater unless `above`: what is beyond any number yields."""
    yields = Pad.HIGH if above else Pad.LOW
    if above and Pad.INDEX in (one.kind, other.kind) and (one.flat or other.flat):
        return WRAPPED
    if (found := _alike(one, other)) is not None:
        return found
    for a, b in ((one, other), (other, one)):
        if a.kind is yields and b.kind is Pad.SUM:
            return Padded(Pad.SUM)
        if a.kind is b.kind or a.kind is _LIMITS[yields]:
            return _result(a.kind, a, b, positive=a.positive)
        if a.kind is Pad.SUM and b.flat:
            return Padded(Pad.SUM)
        zero_wins = b.value is not None and (b.value >= 0 if above else b.value <= 0)
        if a.kind is Pad.ZERO and b.flat and zero_wins:
            return _result(Pad.ZERO, a, b, positive=not above or a.positive)
        if a.kind is Pad.SUM and b.kind is Pad.ZERO and b.positive and not above:
            return Padded(Pad.SUM)
    return OTHER


def chosen(condition: Padded, one: Padded, other: Padded) -> Padded:
    """`where(condition, one, other)`."""
    positive = one.positive and other.positive
    if condition.kind in (Pad.ZERO, Pad.PAST):
        found = (other if condition.kind is Pad.ZERO else one).filled
        if found.kind is Pad.OTHER:
            return OTHER
        return Padded(found.kind, condition.bound or found.bound, positive)
    if all(value.flat for value in (condition, one, other)):
        return _alike(one, other) or NONE
    sums = {Pad.SUM, *FLAT}
    if all(value.kind in sums for value in (condition, one, other)):
        return Padded(Pad.SUM)
    left, right = (value.filled for value in (one, other))
    if left.kind is right.kind is not Pad.MASKED:
        return Padded(left.kind, positive=positive)
    return OTHER


_NOTHING_OF_NOTHING = frozenset({
    "abs", "ceil", "erf", "expm1", "floor", "log1p", "negative", "rint", "sin", "sinh", "sqrt",
    "square", "tan", "tanh", "trunc",
})  # fmt: skip
"""Functions that are zero of zero."""
_SAME = frozenset({
    "astype", "bitcast", "broadcast", "broadcast_to", "cast", "contiguous", "expand_dims",
    "extract", "item", "max_contiguous", "multiple_of", "permute", "reshape", "to", "trans",
    "transpose", "view",
})  # fmt: skip
"""Functions that give the same numbers, as another type or in other places."""
_EXPONENTIAL = frozenset({"exp", "exp2", "sigmoid"})
_POSITIVE = frozenset({"abs", "exp", "exp2", "sigmoid", "sqrt", "square"})

BINARY: Mapping[str, Callable[[Padded, Padded], Padded]] = {
    "add": plus,
    "sub": minus,
    "mul": times,
    "truediv": over,
    "floordiv": over,
    "fdiv": over,
    "div_rn": over,
    "mod": modulo,
    "pow": over,
    "maximum": lambda a, b: limited(a, b, above=False),
    "minimum": lambda a, b: limited(a, b, above=True),
    "bitwise_and": conjunction,
    "bitwise_or": disjunction,
}
"""Functions of two values by their bare names."""


def mapped(name: str, values: list[Padded]) -> Padded:
    """What a function without a meaning of its own gives, by its bare name."""
    value = together(*values)
    if name in _SAME and values:
        return values[0]
    if name in _EXPONENTIAL and value.kind is Pad.LOW:
        return _result(Pad.ZERO, value, positive=True)
    if value.flat or value.kind in (Pad.SUM, Pad.MASKED):
        kind = Pad.NONE if value.kind is Pad.SIZE else value.kind
        return Padded(kind, value.bound, name in _POSITIVE)
    if name == "abs" and value.kind in _LIMITS:
        return _result(Pad.HIGH, value, positive=True)
    if name == "negative":
        return negative(value)
    if name in _NOTHING_OF_NOTHING and value.kind is Pad.ZERO:
        return _result(Pad.ZERO, value, positive=name in _POSITIVE)
    return OTHER


def scanned(name: str, value: Padded) -> Padded:
    """What a reduction of that bare name leaves: a running sum stays as it is past the end."""
    if value.flat or not name.startswith("cum"):
        return NONE
    return Padded(Pad.LAST if name == "cumsum" and value.kind is Pad.ZERO else Pad.OTHER)


def compared(one: Padded, operator: cst.BaseCompOp, other: Padded) -> Padded:
    """A comparison: past the end, an element's number is past any length, too."""
    turned = isinstance(operator, _ABOVE)
    left, right = (other, one) if turned else (one, other)
    bound = Pad.NONE in (left.kind, right.kind)
    if isinstance(operator, (*_BELOW, *_ABOVE)) and (left.kind is Pad.INDEX) != (
        right.kind is Pad.INDEX
    ):
        ends = left.kind is Pad.INDEX
        return Padded(Pad.ZERO if ends else Pad.PAST, bound=bound, positive=True)
    if Pad.INDEX in (left.kind, right.kind):
        return Padded(Pad.ZERO if isinstance(operator, cst.Equal) else Pad.OTHER)
    found = together(one, other)
    if found.flat or found.kind in (Pad.SUM, Pad.MASKED):
        return Padded(Pad.NONE if found.flat else found.kind, positive=True)
    zeros = {one.kind, other.kind} <= {Pad.ZERO} or 0 in (one.value, other.value)
    strict = isinstance(operator, cst.LessThan | cst.GreaterThan | cst.NotEqual)
    is_false = Pad.ZERO in (one.kind, other.kind) and zeros and strict
    return Padded(Pad.ZERO if is_false else Pad.OTHER, positive=True)


def is_neutral(reduction: str, value: Padded) -> bool:
    """Whether a reduction of that bare name gives the same with and without the padding."""
    if value.flat or value.kind in (Pad.SUM, Pad.MASKED):
        return True
    match value.kind:
        case Pad.ZERO:
            adds = reduction in ("sum", "cumsum", "xor_sum")
            return adds or (value.positive and reduction in ("max", "argmax"))
        case Pad.LOW:
            return reduction in ("max", "argmax", "softmax")
        case Pad.HIGH:
            return reduction in ("min", "argmin")
        case Pad.LAST:
            return reduction in ("max", "min")
    return False
