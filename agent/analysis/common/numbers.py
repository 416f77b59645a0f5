"""Numbers that are written down."""

from __future__ import annotations

import math

import libcst as cst

from agent.syntax import Source


def number_of(source: Source, node: cst.CSTNode) -> float | None:
    """A literal, with its sign, or what `float("-inf")` and `math.inf` say; None for others."""
    match node:
        case cst.Integer() | cst.Float():
            return float(node.evaluated_value)
        case cst.UnaryOperation(operator=cst.Minus(), expression=inner):
            number = number_of(source, inner)
            return None if number is None else -number
        case cst.Call(args=[cst.Arg(value=cst.SimpleString() as text)]) if (
            source.name(node.func) == "builtins.float"
        ):
            try:
                return float(str(text.raw_value))
            except ValueError:
                return None
        case cst.Attribute(attr=cst.Name(value="inf" | "infinity")):
            return math.inf
    return None


def signed_integer(node: cst.BaseExpression | None) -> int | None:
    """An integer that is written down, with its sign; None for anything else."""
    match node:
        case cst.Integer():
            return node.evaluated_value
        case cst.UnaryOperation(operator=cst.Minus(), expression=inner):
            number = signed_integer(inner)
            return None if number is None else -number
    return None
