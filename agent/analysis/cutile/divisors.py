"""Values of a cuTile kernel that divide something, where a zero in place of a tiny one shows."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from agent.analysis.cutile.dialect import CT
from agent.syntax import Function, Source, argument, assigned, descendants, positional

SCALED = frozenset(
    f"{CT}{name}" for name in ("astype", "broadcast_to", "mul", "negative", "reshape")
)
"""What gives a tiny number for a tiny one."""
METHODS = frozenset({"astype", "reshape"})
SINGULAR = frozenset(f"{CT}{name}" for name in ("log", "log2", "rsqrt"))
"""What gives no number, or none that is finite, for zero."""


def divided_by(source: Source, function: Function, call: cst.Call) -> Sequence[cst.BaseExpression]:
    """The divisors that the result of a call is, and what takes the logarithm or root of it.

    As it is, scaled, reshaped or of another type: with a number added it is none of the tiny ones.

    Args:
        source: the file.
        function: the kernel or helper that calls.
        call: within it.
    """
    body = function.node.body
    names: set[str] = set()

    def carries(value: cst.BaseExpression) -> bool:
        match value:
            case cst.Name():
                return value.value in names
            case cst.UnaryOperation(expression=inner):
                return carries(inner)
            case cst.BinaryOperation(left=left, operator=cst.Multiply(), right=right):
                return carries(left) or carries(right)
            case cst.Call(func=cst.Attribute(value=owner, attr=cst.Name(value=method))) if (
                method in METHODS and carries(owner)
            ):
                return True
            case cst.Call() if source.name(value.func) in SCALED:
                return any(map(carries, positional(value)))
        return value is call

    known = -1
    while known != len(names):
        known = len(names)
        for target, value in assigned(body):
            if isinstance(target, cst.Name) and carries(value):
                names.add(target.value)
    divisors = [
        division.right
        for division in descendants(body, cst.BinaryOperation)
        if isinstance(division.operator, cst.Divide)
    ]
    for other in descendants(body, cst.Call):
        called = source.name(other.func)
        given = argument(other, 1, "y") if called == f"{CT}truediv" else None
        if called in SINGULAR:
            given = argument(other, 0, "x")
        divisors += [given] if given is not None else []
    return [divisor for divisor in divisors if carries(divisor)]
