"""Exponents of a cuTile kernel whose scale may be left to them.

Of `exp(scores - m)`, with `scores = products * scale` and `m` the running maximum of a row, the
scale may be applied in the exponent, where it is one instruction with the subtraction:
`exp(products * scale - m)`, and `m` is the maximum of the products, scaled once a row. That is the
same for a scale above zero alone, and where nothing else reads the scores. Maxima become those of
exponents in base two.

An exponential is `ct.exp(x)`, `ct.exp2(x * LOG2_E)`, or `ct.exp2(x)` where the scale holds the
factor already. The difference of two maxima, as in a correction, is of the same base.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import e, isclose, log2

import libcst as cst

from agent.analysis.common.reaching_definitions import Ambiguous, Definition, definition
from agent.analysis.common.subject import NotApplicable
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.positive import constant_number
from agent.analysis.cutile.products import is_product
from agent.analysis.cutile.scaled_scores import CHOOSE, LOOKED_FOR, Scaled, ScaledScores
from agent.syntax import Function, Source, descendants, keyword, positional

EXP, EXP2 = f"{CT}exp", f"{CT}exp2"
APPROXIMATE = f"{CT}RoundingMode.APPROX"
CLOSE = 1e-6
"""How far apart two numbers are that are both meant to be log2(e)."""
_DEEP = 12
_Nodes = frozenset[cst.CSTNode]
_Predicate = Callable[[cst.BaseExpression], bool]


@dataclass
class ScaledExponents(ScaledScores):
    """What leaving the scale to the exponents of a function takes."""

    exponentials: dict[cst.Call, None] = field(default_factory=dict)
    """Those whose exponent is one of base two then."""
    factors: dict[cst.BinaryOperation, cst.BaseExpression] = field(default_factory=dict)
    """Products of an exponent and a number -> the exponent, which is left."""
    differences: dict[Scaled, None] = field(default_factory=dict)
    """Scores less a maximum, where the scale goes."""
    outside: list[cst.Name] = field(default_factory=list)
    """Where a maximum is used for anything but exponents of this base."""
    base: float = 1.0
    """What exponents are multiplied by before they are powers of two."""
    factor: cst.BaseExpression | None = None
    """How the file writes that number, if it does."""
    exponents: dict[cst.CSTNode, float] = field(default_factory=dict)
    """Statements that assign exponents -> by what these are multiplied."""

    @classmethod
    def of(cls, source: Source, function: Function) -> ScaledExponents:
        """Trace the exponents of a function.

        Raises:
            NotApplicable: there are none with a scale, or one is used in a way that does not allow
                to leave it to the exponent.
        """
        found = cls(source, function)
        calls = [*exponentials(source, function)]
        try:
            found._trace(calls)
        except Ambiguous:
            raise NotApplicable(
                f"{LOOKED_FOR}, and {function.name} assigns names in a way that is not followed"
            ) from None
        return found

    @property
    def scale(self) -> cst.BaseExpression:
        """By which all scores are multiplied."""
        return next(iter(self.scales.values()))

    @property
    def is_natural(self) -> bool:
        """Whether exponents are those of e, to be multiplied by log2(e)."""
        return isclose(self.base, log2(e), rel_tol=CLOSE)

    def defined_at(self, place: cst.CSTNode) -> dict[str, Definition | None]:
        """What gives the names of the scale, and of the factor, their values at a place."""
        parts = [self.scale, *([self.factor] if self.factor is not None else [])]
        names = {name.value for part in parts for name in _values(part)}
        return {name: definition(self.source, name, place) for name in names}

    def _trace(self, calls: Sequence[cst.Call]) -> None:
        seeds = self._seeds(calls)
        if not seeds:
            raise NotApplicable(f"{LOOKED_FOR}, and those of {self.function.name} have none")
        bases = []
        for call in seeds:
            bases.append(self._base(call, self._exponent(positional(call)[0])))
            self.exponentials[call] = None
        self.base = bases[0]
        if 0.0 in bases or not all(isclose(b, self.base, rel_tol=CLOSE) for b in bases):
            raise self.refusal(seeds[-1], "takes another power in")
        self.name_rows()
        for call in calls:
            if call not in self.exponentials:
                self._take_maxima(call)
        if self.factor is not None:
            number = constant_number(self.source, self.factor) or 0.0
            if not isclose(number, self.base, rel_tol=CLOSE):
                raise self.refusal(self.factor, "multiplies an exponent twice, by")
        self._check_scale()
        self._look_around()

    def _seeds(self, calls: Sequence[cst.Call]) -> list[cst.Call]:
        """The exponentials of scores; else those of something scaled, which will tell why not."""

        def multiplies(node: cst.BaseExpression) -> bool:
            return not self.is_positive(node) and is_product(self.source, node)

        for is_score in (multiplies, lambda _: True):
            found = [call for call in calls if self._takes_scores(positional(call)[0], is_score)]
            if found:
                return found
        return []

    def _base(self, call: cst.Call, factor: float) -> float:
        """What an exponent is multiplied by before it is a power of two; 0 for one that stays."""
        if self.source.name(call.func) == EXP2:
            return factor
        mode = keyword(call, "rounding_mode")
        approximate = mode is None or self.source.name(mode) == APPROXIMATE
        return log2(e) if factor == 1.0 and approximate else 0.0

    # --- which exponents -------------------------------------------------------------------------

    def _takes_scores(
        self, node: cst.BaseExpression, is_score: _Predicate, seen: _Nodes = frozenset()
    ) -> bool:
        """Whether an exponent is a difference of something that is multiplied on its way there.

        `is_score` says of a product's factor whether it makes it one of scores and a scale.
        """

        def assigns(binder: cst.CSTNode) -> bool:
            match binder:
                case cst.Assign(value=value):
                    return self._takes_scores(value, is_score, seen | {binder})
                case cst.AugAssign(target=target, operator=cst.SubtractAssign()):
                    return self._is_scaled(target, is_score, seen | {binder})
            return False

        match node:
            case cst.Name():
                return any(assigns(each) for each in self.definitions(node) if each not in seen)
            case cst.BinaryOperation(left=left, operator=cst.Subtract()):
                return self._is_scaled(left, is_score, seen)
            case cst.BinaryOperation(operator=cst.Multiply()):
                inner = self._inner(node)
                return inner is not None and self._takes_scores(inner, is_score, seen)
        return False

    def _is_scaled(self, node: cst.BaseExpression, is_score: _Predicate, seen: _Nodes) -> bool:
        def assigns(binder: cst.CSTNode) -> bool:
            match binder:
                case cst.AugAssign(target=target, operator=operator):
                    scales = isinstance(operator, cst.MultiplyAssign) and is_score(target)
                    return scales or self._is_scaled(target, is_score, seen | {binder})
                case cst.Assign(value=value):
                    return self._is_scaled(value, is_score, seen | {binder})
            return False

        match node:
            case cst.BinaryOperation(left=left, operator=cst.Multiply(), right=right):
                return is_score(left) or is_score(right)
            case cst.BinaryOperation(left=left, operator=cst.Add(), right=right):
                return any(self._is_scaled(side, is_score, seen) for side in (left, right))
            case cst.Call() if self.source.name(node.func) == CHOOSE:
                return any(self._is_scaled(v, is_score, seen) for v in positional(node)[1:])
            case cst.Name():
                return any(assigns(each) for each in self.definitions(node) if each not in seen)
        return False

    def _inner(self, node: cst.BinaryOperation) -> cst.BaseExpression | None:
        """The exponent of its product with a number above zero."""
        for number, other in ((node.right, node.left), (node.left, node.right)):
            value = constant_number(self.source, number)
            if value is not None and value > 0 and constant_number(self.source, other) is None:
                return other
        return None

    def _is_of_maxima(self, node: cst.BaseExpression, deep: int = 0) -> bool:
        """Whether an exponent is the difference of two maxima, as that of a correction is."""
        match node:
            case cst.Name() if deep < _DEEP:
                values = [
                    each.value
                    for each in self.definitions(node)
                    if isinstance(each, cst.Assign)
                    and isinstance(each.targets[0].target, cst.Name)
                    and len(each.targets) == 1
                ]
                whole = bool(values) and len(values) == len(self.definitions(node))
                return whole and all(self._is_of_maxima(value, deep + 1) for value in values)
            case cst.BinaryOperation(left=left, operator=cst.Subtract(), right=right):
                return self.is_row(left) and self.is_row(right)
            case cst.BinaryOperation(operator=cst.Multiply()):
                inner = self._inner(node)
                return inner is not None and self._is_of_maxima(inner, deep)
        return False

    # --- what they are computed from -------------------------------------------------------------

    def _exponent(self, node: cst.BaseExpression) -> float:
        """Mark an exponent, with what it is computed from; what the difference is multiplied by."""
        match node:
            case cst.Name():
                self.seen.add(node)
                return self._same(node, [self._assigned(each) for each in self.defined(node)])
            case cst.BinaryOperation(left=left, operator=cst.Subtract(), right=right):
                if self._is_of_maxima(node):
                    self._read(node)
                else:
                    self._subtracted(node, left, right)
                return 1.0
            case cst.BinaryOperation(operator=cst.Multiply()):
                inner = self._inner(node)
                if inner is not None:
                    number = node.right if inner is node.left else node.left
                    self.factors[node], self.factor = inner, number
                    return self._exponent(inner) * (constant_number(self.source, number) or 0.0)
        raise self.refusal(node)

    def _assigned(self, binder: cst.CSTNode) -> float:
        if binder not in self.exponents:
            self.exponents[binder] = 0.0  # what it is, where it is computed from itself
            match binder:
                case cst.Assign(value=value):
                    self.exponents[binder] = self._exponent(value)
                case cst.AugAssign(target=target, operator=cst.SubtractAssign(), value=value):
                    self._subtracted(binder, target, value)
                    self.exponents[binder] = 1.0
                case _:
                    raise self.refusal(binder)
        return self.exponents[binder]

    def _subtracted(
        self, node: Scaled, scores: cst.BaseExpression, row: cst.BaseExpression
    ) -> None:
        self.row(row)
        self.score(scores)
        self.differences[node] = None

    def _same(self, node: cst.CSTNode, factors: Iterable[float]) -> float:
        found = {*factors}
        if len(found) != 1 or 0.0 in found:
            raise self.refusal(node)
        return found.pop()

    def _take_maxima(self, call: cst.Call) -> None:
        """Change an exponential of maxima too, if it is one of the same base."""
        given = positional(call)[0]
        if not self._is_of_maxima(given):
            return
        before = dict(self.factors), dict(self.exponents), {*self.seen}, self.factor
        if isclose(self._base(call, self._exponent(given)), self.base, rel_tol=CLOSE):
            self.exponentials[call] = None
        else:  # its maxima are multiplied back
            self.factors, self.exponents, self.seen, self.factor = before

    def _read(self, node: cst.BaseExpression) -> None:
        self.seen |= {name for name in descendants(node, cst.Name) if self.is_row(name)}

    # --- what else there is ----------------------------------------------------------------------

    def _check_scale(self) -> None:
        """Refuse several scales, and one that is not the same wherever it is used."""
        texts = {self.source.code(scale): None for scale in self.scales.values()}
        if len(texts) > 1:
            raise NotApplicable(
                f"{LOOKED_FOR}, and {self.function.name} has several: {', '.join(texts)}"
            )
        parts = [self.scale, *([self.factor] if self.factor is not None else [])]
        if not all(self._is_fixed(part) for part in parts):
            raise self.refusal(self.scale, "computes anew")
        known = self.defined_at(self.scale)
        for place in (*self.scales, *self.maxima, *self.differences):
            if self.defined_at(place) != known:
                raise self.refusal(place, "has another value of the scale in")

    def _is_fixed(self, node: cst.BaseExpression, deep: int = 0) -> bool:
        """Whether something is computed from parameters and constants, by one assignment each."""
        if constant_number(self.source, node) is not None:
            return True
        for name in _values(node):
            found = definition(self.source, name.value, name)
            if found is None or deep > _DEEP or found.index is not None:
                return False
            if isinstance(found.node, cst.Param):
                continue
            if found.value is None or isinstance(found.node, cst.For):
                return False
            if not self._is_fixed(found.value, deep + 1):
                return False
        return True

    def _look_around(self) -> None:
        """Find the uses of maxima elsewhere; refuse those of scores and exponents."""
        changed = {*self.scores, *self.rows, *self.exponents}
        if len(changed) < len(self.scores) + len(self.rows) + len(self.exponents):
            raise NotApplicable(
                f"{LOOKED_FOR}, and {self.function.name} has scores that are maxima, too"
            )
        names = {_target(binder) for binder in changed}
        for name in descendants(self.function.node.body, cst.Name):
            if name.value not in names or name in self.seen:
                continue
            inner, *around = self.source.ancestors(name)
            if isinstance(inner, cst.AssignTarget) or _is_no_value(name, inner):
                continue
            if self.source.enclosing(name) is not self.function:
                raise self.refusal(name, "uses in a function of its own")
            if changed.isdisjoint(found := {*self.definitions(name)}):
                continue
            bound = any(isinstance(each, cst.AssignTarget) for each in around)
            bound |= name in (getattr(inner, "target", None),)
            if bound or not found <= {*self.rows}:
                raise self.refusal(inner, f"uses `{name.value}` for more than exponents in")
            self.outside.append(name)
        if self.outside and not self.is_natural and self.base != 1.0:
            raise self.refusal(self.outside[0], "uses a maximum of another base,")


def exponentials(source: Source, function: Function) -> Iterator[cst.Call]:
    """The calls that take a power, in the order of the file."""
    calls = CUTILE.find(source, function.node.body, (EXP, EXP2))
    return (call for call in calls if positional(call))


def _values(node: cst.CSTNode) -> list[cst.Name]:
    """The names in an expression that stand for values: no functions, attributes or keywords."""
    names = dict.fromkeys(descendants(node, cst.Name))
    for call in descendants(node, cst.Call):
        for name in descendants(call.func, cst.Name):
            names.pop(name, None)
    for attribute in descendants(node, cst.Attribute):
        names.pop(attribute.attr, None)
    for arg in descendants(node, cst.Arg):
        if arg.keyword is not None:
            names.pop(arg.keyword, None)
    return [*names]


def _target(binder: cst.CSTNode) -> str:
    """The name that a statement assigns."""
    target = binder.target if isinstance(binder, cst.AugAssign) else None
    if isinstance(binder, cst.Assign):
        target = binder.targets[0].target
    return cst.ensure_type(target, cst.Name).value


def _is_no_value(name: cst.Name, around: cst.CSTNode) -> bool:
    """Whether a name stands for an attribute or a keyword."""
    if isinstance(around, cst.Attribute):
        return around.value is not name
    return isinstance(around, cst.Arg) and around.keyword is name
