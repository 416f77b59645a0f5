"""Arithmetic that is done when a loop is written out, rather than when the kernel runs.

`i` of `tl.static_range` is a constant, and so is what is computed of it and of other constants.
Triton divides constants as Python does, down to minus infinity, and numbers of a running kernel
towards zero: `(i - 1) // 2` and `(i - 1) % 2` are something else for `i` of 0. Constants have as
many bits as they take, where a counter has 32. A tile, or what is loaded, stays what it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

import libcst as cst

from agent.analysis.common.derived_names import derived_names
from agent.analysis.common.dialect import Kernel
from agent.analysis.common.reaching_definitions import definition
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.host import HostView
from agent.syntax import Source, Untraceable, assigned, descendants, names_in, positional

DIVIDING = cst.FloorDivide | cst.Modulo
ASSIGNING = cst.FloorDivideAssign | cst.ModuloAssign
GROWING = (cst.Add, cst.Multiply, cst.FloorDivide, cst.Modulo, cst.LeftShift, cst.RightShift)
"""Operators that make no negative number of two that are none."""
WRAPPING = (cst.Add, cst.Subtract, cst.Multiply, cst.LeftShift)
BITS_32, MOST_BITS = 2**31, 64
UNKNOWN = 2**16
"""What a constant may be of which nothing is known."""
GROWING_IN_PLACE = (cst.AddAssign, cst.MultiplyAssign, cst.FloorDivideAssign, cst.ModuloAssign)
KEEPING = (
    *TRITON.cdivs,
    "triton.language.maximum",
    "triton.language.minimum",
    "triton.language.constexpr",
    "builtins.min",
    "builtins.max",
)
"""Functions of constants that are constants, and not negative where those are none."""


class Constancy(Enum):
    """What is known of an operand."""

    RUN_TIME = "computed by the running kernel"
    POSITIVE = "a constant, or zero, that is not negative"
    UNKNOWN = "a constant that may be negative"


def changed_division(
    source: Source, kernel: Kernel, loop: cst.For, counts: Sequence[range]
) -> cst.CSTNode | None:
    """A division whose result may change where a loop is written out; None where there is none.

    Args:
        source: the file.
        kernel: one of its kernels.
        loop: a loop of it.
        counts: what its counter is, launch by launch.
    """
    body = kernel.function.node.body
    own = _computed_in(loop, body)
    operands = _Operands(source, kernel, loop, all(c >= 0 for r in counts for c in r))
    for division, sides in _divisions(source, body):
        names = {name.value for side in sides for name in descendants(side, cst.Name)}
        if names & own:
            kinds = {operands.kind(side) for side in sides}
            if Constancy.RUN_TIME not in kinds and Constancy.UNKNOWN in kinds:
                return division
    return None


def wrapped(
    source: Source, kernel: Kernel, loop: cst.For, counts: Sequence[range]
) -> cst.CSTNode | None:
    """Arithmetic of a loop's counter that may leave 32 bits; None where there is none.

    A running kernel counts in 32 bits, and goes on from the other end. A constant has as many bits
    as it takes.
    """
    body = kernel.function.node.body
    own = _computed_in(loop, body)
    operands = _Operands(source, kernel, loop, positive=False)
    largest = max((abs(c) for each in counts for c in each), default=0)
    for operation in descendants(loop.body, cst.BinaryOperation):
        names = names_in(operation)
        if (
            isinstance(operation.operator, WRAPPING)
            and names & own
            and operands.kind(operation) is not Constancy.RUN_TIME
            and _largest(source, operation, largest, frozenset(names - own)) >= BITS_32
        ):
            return operation
    return None


def _largest(source: Source, node: cst.BaseExpression, count: int, given: frozenset[str]) -> int:
    """What a number may be, at most: a small one where nothing is known of it.

    Args:
        source: the file.
        node: an expression of constants.
        count: the largest of a loop's counter.
        given: names of constants that are not the loop's.
    """
    match node:
        case cst.Integer():
            return abs(node.evaluated_value)
        case cst.UnaryOperation(expression=inner):
            return _largest(source, inner, count, given)
        case cst.BinaryOperation(left=left, operator=operator, right=right):
            one, two = (_largest(source, side, count, given) for side in (left, right))
            if isinstance(operator, cst.LeftShift):
                return one << min(two, MOST_BITS)
            return one * two if isinstance(operator, cst.Multiply) else one + two
        case cst.Name():
            try:
                return abs(source.trace(node).value)
            except Untraceable:
                return max(count, UNKNOWN) if node.value in given else count
    return count


def handed_over(
    source: Source, kernel: Kernel, loop: cst.For, counts: Sequence[range]
) -> cst.Call | None:
    """A call of a helper of the file that is given a constant of a loop; None where there is none.

    What a helper computes of it is computed as of a constant, and it may ask for what only a number
    of the running kernel has, as `i.to(tl.float32)`.
    """
    body = kernel.function.node.body
    own = _computed_in(loop, body)
    operands = _Operands(source, kernel, loop, all(c >= 0 for r in counts for c in r))
    for call in descendants(loop.body, cst.Call):
        if source.function_of(call.func) is None:
            continue
        for arg in call.args:
            names = names_in(arg.value)
            if names & own and operands.kind(arg.value) is not Constancy.RUN_TIME:
                return call
    return None


def _computed_in(loop: cst.For, body: cst.CSTNode) -> set[str]:
    """The names that a loop gives values, and those that are computed from them."""
    names = names_in(loop.target)
    names |= {n.value for t, _ in assigned(loop.body) for n in descendants(t, cst.Name)}

    def uses(value: cst.BaseExpression, known: set[str]) -> bool:
        return any(name.value in known for name in descendants(value, cst.Name))

    return derived_names(body, uses, names)


def _divisions(
    source: Source, body: cst.CSTNode
) -> Iterator[tuple[cst.CSTNode, Sequence[cst.BaseExpression]]]:
    for operation in descendants(body, cst.BinaryOperation):
        if isinstance(operation.operator, DIVIDING):
            yield operation, (operation.left, operation.right)
    for statement in descendants(body, cst.AugAssign):
        if isinstance(statement.operator, ASSIGNING):
            yield statement, (statement.target, statement.value)
    for call in TRITON.find(source, body, TRITON.cdivs):
        yield call, positional(call)


class _Operands:
    def __init__(self, source: Source, kernel: Kernel, loop: cst.For, positive: bool) -> None:
        self.source, self.kernel, self.loop, self.positive = source, kernel, loop, positive

    def kind(self, node: cst.BaseExpression, seen: frozenset[str] = frozenset()) -> Constancy:
        """What an operand is; `seen` holds the names whose values are being looked at."""
        match node:
            case cst.Integer():
                return Constancy.POSITIVE
            case cst.BinaryOperation(left=left, operator=operator, right=right):
                kinds = {self.kind(left, seen), self.kind(right, seen)}
                if Constancy.RUN_TIME in kinds:
                    return Constancy.RUN_TIME
                grows = isinstance(operator, GROWING) and kinds == {Constancy.POSITIVE}
                return Constancy.POSITIVE if grows else Constancy.UNKNOWN
            case cst.Subscript(value=value) | cst.UnaryOperation(expression=value):
                found = self.kind(value, seen)
                return found if found is Constancy.RUN_TIME else Constancy.UNKNOWN
            case cst.Call(func=cst.Attribute(value=value, attr=cst.Name(value="to"))):
                return self.kind(value, seen)
            case cst.Call():
                return self._of_call(node, seen)
            case cst.Name():
                return self._of_name(node, seen)
        return Constancy.UNKNOWN

    def _of_call(self, call: cst.Call, seen: frozenset[str]) -> Constancy:
        called = self.source.name(call.func) or ""
        kinds = {self.kind(value, seen) for value in positional(call)}
        if called in (*KEEPING, *TRITON.ranges):
            known = Constancy.RUN_TIME if Constancy.RUN_TIME in kinds else Constancy.UNKNOWN
            return Constancy.POSITIVE if kinds == {Constancy.POSITIVE} else known
        return Constancy.RUN_TIME if TRITON.owns(called) else Constancy.UNKNOWN

    def _of_name(self, name: cst.Name, seen: frozenset[str]) -> Constancy:
        found = definition(self.source, name.value, name)
        if found is not None and found.node is self.loop:
            return Constancy.POSITIVE if self.positive else Constancy.UNKNOWN
        if name.value in self.kernel.constants:
            return Constancy.UNKNOWN if self._is_negative(name.value) else Constancy.POSITIVE
        if any(p.name.value == name.value for p in self.kernel.function.parameters):
            return Constancy.RUN_TIME
        if name.value in seen:
            return Constancy.POSITIVE
        values, less = self._values(name.value)
        if not values:
            return self._of_module(name)
        seen |= {name.value}
        first = [v for v in values if not any(n.value == name.value for n in _names(v))]
        if first and all(self.kind(value, seen) is Constancy.RUN_TIME for value in first):
            return Constancy.RUN_TIME
        unknown = less or any(self.kind(value, seen) is Constancy.UNKNOWN for value in values)
        return Constancy.UNKNOWN if unknown else Constancy.POSITIVE

    def _values(self, name: str) -> tuple[list[cst.BaseExpression], bool]:
        """What a name is assigned, and whether anything but a sum is made of it in place."""
        body = self.kernel.function.node.body
        added = [a for a in descendants(body, cst.AugAssign) if _is(a.target, name)]
        less = any(not isinstance(a.operator, GROWING_IN_PLACE) for a in added)
        plain = {id(a.value) for a in added}
        found = [v for t, v in assigned(body) if _is(t, name) and id(v) not in plain]
        own = frozenset({name})
        less |= any(self.kind(each.value, own) is Constancy.UNKNOWN for each in added)
        return found, less

    def _of_module(self, name: cst.Name) -> Constancy:
        try:
            value = self.source.trace(name).value
        except Untraceable:
            return Constancy.UNKNOWN
        return Constancy.POSITIVE if value >= 0 else Constancy.UNKNOWN

    def _is_negative(self, constant: str) -> bool:
        """Whether some launch is seen to give a constant a negative number."""
        given = (HostView(self.source, x).given(constant) for x in self.kernel.launches)
        behind = (self.source.resolve(value) for value in given if value is not None)
        return any(isinstance(value, cst.UnaryOperation) for value in behind)


def _is(target: cst.CSTNode, name: str) -> bool:
    return isinstance(target, cst.Name) and target.value == name


def _names(node: cst.CSTNode) -> Iterator[cst.Name]:
    return descendants(node, cst.Name)
