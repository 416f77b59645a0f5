"""The value of an expression that is made of integers alone: `2**4`, `1 << 10`, `4 * 32`."""

from __future__ import annotations

import operator
from collections.abc import Callable

import libcst as cst

_OPERATORS: dict[type[cst.BaseBinaryOp], Callable[[int, int], int]] = {
    cst.Add: operator.add,
    cst.Subtract: operator.sub,
    cst.Multiply: operator.mul,
    cst.FloorDivide: operator.floordiv,
    cst.LeftShift: operator.lshift,
    cst.RightShift: operator.rshift,
    cst.Power: operator.pow,
}
_MOST_BITS = 64
"""By how much is shifted, and what is raised to, at most."""


def integer_of(expression: cst.BaseExpression) -> int | None:
    """What an expression of integers comes to; None for any other, and for one without a value."""
    match expression:
        case cst.Integer():
            return expression.evaluated_value
        case cst.BinaryOperation(operator=operation):
            left, right = integer_of(expression.left), integer_of(expression.right)
            computed = _OPERATORS.get(type(operation))
            if computed is None or left is None or right is None:
                return None
            bounded = isinstance(operation, cst.LeftShift | cst.RightShift | cst.Power)
            if right < 0 or (bounded and right > _MOST_BITS):
                return None
            return None if not right and computed is operator.floordiv else computed(left, right)
    return None
