"""Writes expressions and statements around the block indices of a cuTile kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import libcst as cst

from agent.analysis.common.subject import NotApplicable
from agent.syntax import Source


def spelling(source: Source, call: cst.Call) -> str:
    """How the file spells cuda.tile: `ct` of `ct.bid`. Raises `NotApplicable` for a bare name."""
    if isinstance(call.func, cst.Attribute):
        return source.code(call.func.value)
    raise NotApplicable(f"`{source.code(call.func)}` stands for a function of cuda.tile by itself")


def replacing(
    source: Source, expression: cst.BaseExpression, text: str
) -> Callable[[Any], cst.CSTNode]:
    """The edit that writes another expression, in parentheses where it is an operand."""
    around = next(source.ancestors(expression))
    alone = isinstance(around, cst.Assign | cst.AnnAssign | cst.Arg | cst.Element | cst.Index)
    bare = alone or text.isidentifier()
    return lambda _: cst.parse_expression(text if bare else f"({text})")


def line_of(source: Source, node: cst.CSTNode) -> cst.SimpleStatementLine:
    """The statement that holds a launch, or what it is given. Raises `NotApplicable` otherwise."""
    for around in source.ancestors(node):
        if isinstance(around, cst.SimpleStatementLine):
            return around
        if isinstance(around, cst.Lambda | cst.BaseComp):
            break
    raise NotApplicable(f"line {source.line(node)} launches inside another expression")
