"""Numbers among exponents that stand for minus infinity, as masks put them there."""

from __future__ import annotations

import libcst as cst

from agent.analysis.common.numbers import number_of
from agent.syntax import Source, argument

TL = "triton.language."
FILLED = {f"{TL}full": (1, "value")}
ZEROS = f"{TL}zeros"
NEGLIGIBLE = -1e4
"""A number below it stands for minus infinity: no power of it differs from zero. It does count
where nothing else is left, as the maximum of a row that is masked altogether."""


def negligible(source: Source, node: cst.BaseExpression) -> cst.BaseExpression | None:
    """The number that an expression has for all elements, if it stands for minus infinity."""
    value = number_of(source, node)
    if value is not None:
        return node if value <= NEGLIGIBLE else None
    match node:
        case cst.BinaryOperation(left=cst.Call(func=func), operator=cst.Subtract(), right=right):
            number = number_of(source, right)
            found = source.name(func) == ZEROS and number is not None and -number <= NEGLIGIBLE
            return right if found else None
        case cst.BinaryOperation(left=cst.Call(func=func), operator=cst.Add(), right=right):
            return negligible(source, right) if source.name(func) == ZEROS else None
        case cst.Call() if (where := FILLED.get(source.name(node.func) or "")) is not None:
            filled = argument(node, *where)
            return negligible(source, filled) if filled is not None else None
    return None


def of_module(source: Source, name: cst.Name) -> float | None:
    """The number that the module gives a name, as itself or as `tl.constexpr(-1e9)`."""
    value = source.resolve(name)
    if isinstance(value, cst.Call) and source.name(value.func) == f"{TL}constexpr" and value.args:
        value = value.args[0].value
    return number_of(source, value)
