"""Masks of several conditions, one a line where a line cannot hold them."""

from __future__ import annotations

import libcst as cst

from agent.rewriting.common.formatting import STEP, Place
from agent.rewriting.triton.edits import Edit
from agent.syntax import Source


def conjunction_around(source: Source, condition: cst.BaseExpression) -> cst.BaseExpression:
    """The outermost `a & b & c` that a condition is part of; itself where it is part of none."""
    outer = condition
    for around in source.ancestors(condition):
        if not isinstance(around, cst.BinaryOperation) or not _joins(around):
            break
        outer = around
    return outer


def one_a_line(source: Source, whole: cst.BinaryOperation) -> Edit:
    """The edit of a conjunction that breaks it before each `&`, if it is too long once edited."""
    place = Place.of(source, whole)

    def edit(updated: cst.BaseExpression) -> cst.BaseExpression:
        bare = updated.with_changes(lpar=(), rpar=())
        text = source.module.code_for_node(updated)
        if "\n" in text or place.fits(text) or not isinstance(bare, cst.BinaryOperation):
            return updated
        inside, closing = (
            cst.ParenthesizedWhitespace(
                indent=True, last_line=cst.SimpleWhitespace(" " * (place.indent - place.block + by))
            )
            for by in (STEP, 0)
        )
        return _broken(bare, inside).with_changes(
            lpar=[cst.LeftParen(whitespace_after=inside)],
            rpar=[cst.RightParen(whitespace_before=closing)],
        )

    return edit


def _joins(node: cst.BinaryOperation) -> bool:
    return isinstance(node.operator, cst.BitAnd)


def _broken(node: cst.BinaryOperation, between: cst.ParenthesizedWhitespace) -> cst.BinaryOperation:
    left, operator = node.left, node.operator.with_changes(whitespace_before=between)
    if isinstance(left, cst.BinaryOperation) and _joins(left) and not left.lpar:
        left = _broken(left, between)
    return node.with_changes(left=left, operator=operator)
