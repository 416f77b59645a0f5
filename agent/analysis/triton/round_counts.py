"""How many rounds a loop of a Triton kernel takes, by the launches that tests were seen to make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.reaching_definitions import binds, value_of
from agent.analysis.triton.dialect import TRITON
from agent.launches import ObservedLaunch
from agent.syntax import Source, positional


def most_rounds(
    source: Source, kernel: Kernel, ranged: cst.Call, launches: Iterable[ObservedLaunch]
) -> int | None:
    """The most rounds of a loop over `ranged` in any launch; None where that is not known.

    Args:
        source: the file.
        kernel: the kernel that the loop is part of.
        ranged: what it runs over: `range(0, n, BLOCK)`.
        launches: those seen, of other kernels too.
    """
    body = kernel.function.node.body
    names = [p.name.value for p in kernel.function.parameters if not binds(body, p.name.value)]
    found: list[int] = []
    for launch in (each for each in launches if each.kernel == kernel.name):
        known = {name: launch.integers[name] for name in names if name in launch.integers}
        values = [_value(source, part, known) for part in positional(ranged)]
        told = [value for value in values if value is not None]
        if len(told) != len(values) or not 1 <= len(told) <= 3 or 0 in told[2:]:
            return None
        found.append(len(range(*told)))
    return max(found, default=None)


def _value(source: Source, expression: cst.BaseExpression, known: Mapping[str, int]) -> int | None:
    """What an expression of integers is; None where something in it is not known."""
    behind = value_of(source, expression)
    match behind:
        case cst.Integer():
            return behind.evaluated_value
        case cst.Name(value=name):
            return known.get(name)
        case cst.BinaryOperation(left=left, right=right, operator=operator):
            one, other = _value(source, left, known), _value(source, right, known)
            if one is not None and other is not None:
                return _computed(operator, one, other)
        case cst.Call() if source.name(behind.func) in TRITON.cdivs:
            values = [_value(source, part, known) for part in positional(behind)]
            match values:
                case [int() as whole, int() as part] if part:
                    return -(-whole // part)
    return None


def _computed(operator: cst.BaseBinaryOp, one: int, other: int) -> int | None:
    match operator:
        case cst.Add():
            return one + other
        case cst.Subtract():
            return one - other
        case cst.Multiply():
            return one * other
        case cst.FloorDivide() if other:
            return one // other
    return None
