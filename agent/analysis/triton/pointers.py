"""Base pointers of the addresses of a Triton kernel."""

from __future__ import annotations

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source, assigned, keyword, positional


def root(source: Source, kernel: Kernel, address: cst.BaseExpression) -> str | None:
    """The parameter a pointer expression begins with: `x_ptr` of `x_ptr + row * stride + cols`.

    A local name is followed to its first assignment. None when there is no such parameter.
    """
    parameters = {p.name.value for p in kernel.function.parameters}
    first: dict[str, cst.BaseExpression] = {}
    for target, value in assigned(kernel.function.node.body):
        if isinstance(target, cst.Name):
            first.setdefault(target.value, value)
    for _ in range(1 + len(first)):
        address = leftmost(source, address)
        if not isinstance(address, cst.Name):
            return None
        if address.value in parameters:
            return address.value
        if address.value not in first:
            return None
        address = first[address.value]
    return None


def spelling(source: Source, call: cst.Call) -> str | None:
    """How the file spells triton.language: 'tl' where it says `tl.load`; None where `load`."""
    if isinstance(call.func, cst.Attribute):
        return source.code(call.func.value)
    return None


def leftmost(source: Source, expression: cst.BaseExpression) -> cst.BaseExpression:
    """Down the left of sums, through `tl.multiple_of` and the like, and methods as `.to()`."""
    while True:
        if isinstance(expression, cst.BinaryOperation):
            expression = expression.left
        elif isinstance(expression, cst.Call):
            own = TRITON.owns(source.name(expression.func))
            values = positional(expression)
            base = values[0] if values else keyword(expression, "base")
            if own and base is not None:
                expression = base
            elif isinstance(expression.func, cst.Attribute) and not own:
                expression = expression.func.value
            else:
                return expression
        else:
            return expression
