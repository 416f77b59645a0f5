"""Whether a block of another size may hold nothing but minus infinity, for a running maximum.

A softmax in one pass keeps the greatest number of the blocks so far and takes `exp(x - greatest)`.
Where a row's first block holds nothing but minus infinity, that is `exp(-inf - -inf)`: not a
number, which all later sums take in. Whether there is such a block is a matter of its size, if a
mask or the data may begin with minus infinity: a window that moves with the row, forbidden tokens.
Not if the mask only cuts off an end, as that of a length does, or a causal one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from agent.analysis.common.constant_flow import Flow
from agent.analysis.common.dialect import SHAPING
from agent.analysis.common.inner_flows import inner_flows
from agent.analysis.common.numbers import number_of
from agent.analysis.common.reaching_definitions import traced
from agent.analysis.common.rounds import Round, rounds_of
from agent.syntax import argument, assigned, children, descendants, keyword, names_in, positional

_MAXIMA = frozenset({"max", "maximum"})
_EXPONENTIALS = frozenset({"exp", "exp2"})
_HINTS = frozenset({"max_contiguous", "multiple_of"})
_UPPER = (cst.LessThan, cst.LessThanEqual)
_LOWER = (cst.GreaterThan, cst.GreaterThanEqual)
_DEEPEST = 12


def may_shrink(flow: Flow) -> bool:
    """Whether a smaller block, by which a loop steps, holds a number where the present one does."""
    return not any(
        found.steps and found.exposed() for each in _all(flow) for found in _softmaxes(each)
    )


def begins_otherwise(flow: Flow) -> str | None:
    """Why rows may not be put into other blocks: their loop begins elsewhere then, masked."""
    for each in _all(flow):
        for found in _softmaxes(each):
            if found.begins_by_it and found.exposed():
                line = flow.source.line(found.round.loop)
                return (
                    f"where the loop at line {line} begins depends on it, and a row whose first "
                    "block is masked altogether is not a number"
                )
    return None


def _all(flow: Flow) -> Iterator[Flow]:
    yield flow
    for inner in inner_flows(flow):
        yield from _all(inner)


def _softmaxes(flow: Flow) -> Iterator[_Softmax]:
    """The loops that subtract a running maximum which may be minus infinity, without a test."""
    for found in rounds_of(flow):
        each = _Softmax(flow, found)
        if each.hidden or (each.tiles and each.subtracts and not each.tests):
            yield each


@dataclass(frozen=True)
class _Softmax:
    flow: Flow
    round: Round

    @property
    def _bounds(self) -> Sequence[cst.BaseExpression]:
        loop = self.round.loop.iter
        return positional(loop) if isinstance(loop, cst.Call) else ()

    @property
    def steps(self) -> bool:
        """Whether the constant is how far the loop goes in a round, or how many rounds it has."""
        loop, bounds = self.round.loop.iter, self._bounds
        step = keyword(loop, "step") if isinstance(loop, cst.Call) else None
        last = step or next(iter(bounds[2:] or bounds[-1:]), None)
        return last is not None and self.flow.carries(last)

    @property
    def begins_by_it(self) -> bool:
        """Whether the constant says where the loop begins."""
        bounds = self._bounds
        return len(bounds) > 1 and self.flow.carries(bounds[0])

    @cached_property
    def hidden(self) -> bool:
        """Whether the round leaves to a helper what is asked for here."""
        for call in descendants(self.round.loop.body, cst.Call):
            helper = self.flow.source.function_of(call.func)
            calls = [*descendants(helper.node.body, cst.Call)] if helper is not None else []
            reduces = any(self._called(c) == "max" and self._is_reduction(c) for c in calls)
            if reduces and any(self._called(c) in _EXPONENTIALS for c in calls):
                return True
        return False

    @cached_property
    def tiles(self) -> list[cst.BaseExpression]:
        """What running maxima take in that may begin as minus infinity."""
        found = []
        for call in descendants(self.round.loop.body, cst.Call):
            given = positional(call)
            if self._called(call) not in _MAXIMA or len(given) != 2:
                continue
            for kept, other in (given, given[::-1]):
                reduced = self._reduced(other)
                if reduced is not None and isinstance(kept, cst.Name) and self._begins(kept.value):
                    found.append(reduced)
        return found

    @cached_property
    def subtracts(self) -> bool:
        """Whether an exponential of the round is that of a difference."""
        return any(
            self._called(call) in _EXPONENTIALS
            and (given := argument(call, 0, "x")) is not None
            and any(self._is_difference(value) for value in self._behind(given))
            for call in descendants(self.round.loop.body, cst.Call)
        )

    @cached_property
    def tests(self) -> bool:
        """Whether each exponential is one of what was asked for minus infinity, or is chosen so."""
        return all(
            self._is_tested(call)
            for call in descendants(self.round.loop.body, cst.Call)
            if self._called(call) in _EXPONENTIALS
        )

    def _is_tested(self, exponential: cst.Call) -> bool:
        names = names_in(exponential)
        chosen = [value for name, value in self.round.values if name in names]
        around = (
            a for a in self.flow.source.ancestors(exponential) if isinstance(a, cst.Call | cst.If)
        )
        return any(
            self._value(side) == -math.inf
            for node in (*chosen, *around)
            for comparison in descendants(node, cst.Comparison)
            for side in (comparison.left, *(each.comparator for each in comparison.comparisons))
        )

    def exposed(self) -> bool:
        """Whether the first elements of such a tile may be minus infinity."""
        return self.hidden or any(self._exposes(tile, ()) for tile in self.tiles)

    def _called(self, call: cst.Call) -> str:
        called = self.flow.called(call)
        if not called and isinstance(call.func, cst.Attribute):
            called = call.func.attr.value
        return called.rpartition(".")[2]

    def _reduced(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """The tile of `max(tile, axis)`, also behind a name, as `[:, None]` of it or scaled."""
        for value in self._behind(node):
            for call in descendants(value, cst.Call):
                if self._called(call) == "max" and self._is_reduction(call):
                    return self._reduces(call)
        return None

    def _is_reduction(self, call: cst.Call) -> bool:
        """Not `max(one, other)` of Python."""
        called = self.flow.called(call)
        return called in self.flow.dialect.reductions or isinstance(call.func, cst.Attribute)

    def _reduces(self, call: cst.Call) -> cst.BaseExpression | None:
        """The tile of `max(tile, axis=0)` or `tile.max(axis=0)`."""
        owned = self.flow.dialect.owns(self.flow.source.name(call.func))
        if isinstance(call.func, cst.Attribute) and not owned:
            return call.func.value
        return call.args[0].value if call.args else None

    def _begins(self, name: str) -> bool:
        """Whether a name is kept from round to round, and may begin as minus infinity."""
        inside = {id(value) for _, value in self.round.values}
        if not any(other == name for other, _ in self.round.values):
            return False
        first = [
            value
            for target, value in assigned(self.flow.body)
            if id(value) not in inside and isinstance(target, cst.Name) and target.value == name
        ]
        return not first or not all(self._is_finite(value) for value in first)

    def _value(self, node: cst.BaseExpression) -> float | None:
        """A number, also behind a name or as all elements of a tile; None for what is none."""
        if isinstance(node, cst.Name):
            values = self._behind(node)
            node = values[0] if len(values) == 1 else traced(self.flow.source, node)
        if isinstance(node, cst.Call) and self._called(node) in ("constexpr", "full"):
            place = 0 if self._called(node) == "constexpr" else 1
            given = argument(node, place, "value") or argument(node, place, "fill_value")
            return self._value(given) if given is not None and given is not node else None
        return number_of(self.flow.source, node)

    def _is_finite(self, node: cst.BaseExpression) -> bool:
        number = self._value(node)
        if number is not None:
            return math.isfinite(number)
        match node:
            case cst.BinaryOperation(left=left, right=right):
                return self._is_finite(left) and self._is_finite(right)
            case cst.Call() if self._called(node) in ("zeros", "full"):
                given = argument(node, 1, "value") or argument(node, 1, "fill_value")
                return self._called(node) == "zeros" or (
                    given is not None and self._is_finite(given)
                )
        return False

    def _behind(self, node: cst.BaseExpression) -> list[cst.BaseExpression]:
        """What is assigned to a name in the round, or else before it; another value itself."""
        if not isinstance(node, cst.Name):
            return [node]
        values = [value for name, value in self.round.values if name == node.value]
        return values or [
            value
            for target, value in assigned(self.flow.body)
            if isinstance(target, cst.Name) and target.value == node.value
        ]

    def _is_difference(self, node: cst.CSTNode) -> bool:
        return any(
            isinstance(each.operator, cst.Subtract)
            for each in descendants(node, cst.BinaryOperation)
        )

    # --- the first elements of a tile ---------------------------------------------------------

    def _exposes(self, node: cst.CSTNode, seen: tuple[str, ...]) -> bool:
        match node:
            case cst.Name(value=name):
                values = [value for other, value in self.round.values if other == name]
                deeper = (*seen, name)
                return name not in seen and any(self._exposes(value, deeper) for value in values)
            case cst.Comparison():
                return False
            case cst.BinaryOperation(operator=cst.MatrixMultiply()):
                return False
            case cst.Call():
                called = self.flow.called(node)
                if called in self.flow.dialect.loads:
                    return True
                if called in self.flow.dialect.dots or called.endswith(".sum"):
                    return False
                if self.flow.source.function_of(node.func) is not None:
                    return True  # what a helper makes of it is not followed
                given = positional(node)
                if called.rpartition(".")[2] == "where" and len(given) == 3:
                    return self._chooses(given, seen)
            case cst.Attribute(value=value) | cst.Arg(value=value):
                return self._exposes(value, seen)
        return any(self._exposes(child, seen) for child in children(node))

    def _chooses(self, given: Sequence[cst.BaseExpression], seen: tuple[str, ...]) -> bool:
        """The same of `where(test, one, other)`."""
        test, one, other = given
        for value, keeps in ((one, False), (other, True)):
            if self._value(value) == -math.inf and not self._keeps_first(test, keeps, ()):
                return True
        return any(self._exposes(value, seen) for value in (one, other))

    def _keeps_first(self, test: cst.BaseExpression, keeps: bool, seen: tuple[str, ...]) -> bool:
        """Whether elements are kept from the first one on, by a test that says which are kept.

        Args:
            test: true for those that are kept, or for those that are not.
            keeps: which of the two.
            seen: names that were followed.
        """
        deep = len(seen)
        match test:
            case cst.Name(value=name) if name in seen:
                return True  # of the mask that was: `mask & more`
            case cst.Name(value=name) if self._counts(test, deep):
                values = self._behind(test)
                stepped = [self.round.augmented[v].operator for v in values
                           if v in self.round.augmented]  # fmt: skip
                narrows = all(isinstance(each, cst.BitAndAssign) for each in stepped)
                return (
                    (keeps or not stepped)
                    and narrows
                    and deep < _DEEPEST
                    and all(self._keeps_first(value, keeps, (*seen, name)) for value in values)
                )
            case cst.UnaryOperation(operator=cst.BitInvert() | cst.Not(), expression=inner):
                return self._keeps_first(inner, not keeps, seen)
            case cst.BinaryOperation(
                operator=cst.BitAnd() | cst.BitOr() | cst.Multiply() as operator
            ):
                both = isinstance(operator, cst.BitOr) is not keeps
                sides = [self._keeps_first(side, keeps, seen) for side in (test.left, test.right)]
                return all(sides) if both else any(sides)
            case _ if not self._counts(test, deep):
                return True  # the same for all elements of a row
            case cst.Comparison(left=left, comparisons=[cst.ComparisonTarget() as target]):
                one, two = self._grows(left, deep), self._grows(target.comparator, deep)
                if one is None or two is None:
                    return False
                ends = {_UPPER: one - two > 0, _LOWER: one - two < 0}
                found = [end for kind, end in ends.items() if isinstance(target.operator, kind)]
                return found == [keeps]
            case cst.Subscript(value=inner):
                return self._keeps_first(inner, keeps, seen)
        return False

    def _counts(self, node: cst.CSTNode, deep: int) -> bool:
        """Whether a value differs along a row: by the number of an element, or as it was loaded."""
        counters = names_in(self.round.loop.target)
        for call in descendants(node, cst.Call):
            if self.flow.called(call) in self.flow.dialect.loads:
                return True
        return any(
            name.value in counters
            or (
                deep < _DEEPEST
                and any(name.value == other for other, _ in self.round.values)
                and any(self._counts(value, deep + 1) for value in self._behind(name))
            )
            or self._is_stepped(name.value)
            for name in descendants(node, cst.Name)
        )

    def _is_stepped(self, name: str) -> bool:
        """Whether a round adds to a name: `columns += BLOCK`."""
        return any(
            other == name and value in self.round.augmented for other, value in self.round.values
        )

    def _grows(self, node: cst.BaseExpression, deep: int) -> int | None:
        """1 where a value grows with the element's number, -1 where it falls, 0 where it is the
        same; None where nobody can tell."""
        if not self._counts(node, deep):
            return 0
        counters = names_in(self.round.loop.target)
        match node:
            case cst.Name(value=name) if name in counters:
                falls = any(isinstance(each, cst.UnaryOperation) for each in self._bounds[2:])
                return -1 if falls else 1
            case cst.Name(value=name) if self._is_stepped(name):
                return 1
            case cst.Name() if deep < _DEEPEST:
                values = self._behind(node)
                return self._grows(values[0], deep + 1) if len(values) == 1 else None
            case cst.BinaryOperation(left=left, operator=cst.Add() | cst.Subtract(), right=right):
                one, two = self._grows(left, deep), self._grows(right, deep)
                if one is None or two is None:
                    return None
                both = one + two if isinstance(node.operator, cst.Add) else one - two
                return max(-1, min(1, both))
            case cst.BinaryOperation(left=left, operator=cst.Multiply(), right=right):
                one, two = self._grows(left, deep), self._grows(right, deep)
                return None if one is None or two is None or (one and two) else one or two
            case cst.BinaryOperation(left=left, operator=cst.FloorDivide(), right=right):
                return self._grows(left, deep) if self._grows(right, deep) == 0 else None
            case cst.Subscript(value=inner):
                return self._grows(inner, deep)
            case cst.Call() if self._called(node) in (*SHAPING, *_HINTS):
                owned = self.flow.dialect.owns(self.flow.source.name(node.func))
                inner = node.func.value if isinstance(node.func, cst.Attribute) else node
                given = next(iter(positional(node)), None) if owned else inner
                return self._grows(given, deep) if given is not None and given is not node else None
        return None
