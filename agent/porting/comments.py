"""Comments of what is written anew or left out: they go above the statement that stays."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import libcst as cst
from libcst import matchers

from agent.syntax import Source

Edit = Callable[[Any], Any]
HEADS: Mapping[type, str] = {cst.If: "test", cst.While: "test", cst.For: "iter"}
"""Statement with a body -> the expression of it that is translated."""
FOR_TOOLS = re.compile(r"#\s*(type:|noqa|fmt:|pylint|pyright|mypy|ruff)")


def dropped(_: cst.CSTNode) -> cst.RemovalSentinel:
    """The edit that takes a statement out with its comments, which say nothing without it."""
    return cst.RemoveFromParent()


def with_comments(
    source: Source, edits: Mapping[cst.CSTNode, Edit], unsaid: Collection[cst.Comment] = ()
) -> dict[cst.CSTNode, Edit]:
    """The edits, and others that keep the comments that these would lose.

    Args:
        source: the file.
        edits: what becomes of its nodes.
        unsaid: comments that go with what they are about.
    """
    found = dict(edits)
    touched = {each for node in edits if (each := _statement_of(source, node)) is not None}
    blocks = {next(source.ancestors(each)) for each in touched}
    for block in blocks:
        if not isinstance(block, cst.IndentedBlock | cst.Module):
            continue
        below: list[str] = []
        before = False
        for statement in block.body:
            if before or statement in touched:
                found[statement] = _keeping(edits.get(statement), statement, below, unsaid)
            before = statement in touched
        found[block] = _block(edits.get(block), block, below)
    for each in touched:
        if not isinstance(next(source.ancestors(each)), cst.IndentedBlock | cst.Module):  # `elif`
            found[each] = _keeping(edits.get(each), each, [], unsaid)
    return found


def _statement_of(source: Source, node: cst.CSTNode) -> cst.CSTNode | None:
    """The statement that an edited node is part of, unless it is in the body of that."""
    for each in (node, *source.ancestors(node)):
        if isinstance(each, cst.SimpleStatementLine | cst.If | cst.While | cst.For):
            return each
        if isinstance(each, cst.BaseSuite | cst.BaseCompoundStatement | cst.Module):
            return None
    return None


def _keeping(
    edit: Edit | None, old: cst.CSTNode, below: list[str], unsaid: Collection[cst.Comment]
) -> Edit:
    """An edit of a statement that keeps its comments.

    Args:
        edit: what becomes of it otherwise.
        old: the statement.
        below: comments of what was left out above it; those of its own, where it is left out.
        unsaid: comments that need not be kept.
    """

    def kept(new: Any) -> Any:
        result = edit(new) if edit is not None else new
        if result is cst.RemovalSentinel.REMOVE:
            if edit is dropped or not isinstance(
                old, cst.SimpleStatementLine
            ):  # a whole function, with what it says
                return result
            is_import = isinstance(old.body[0], cst.Import | cst.ImportFrom)
            below.extend(_comments(*(old.leading_lines if is_import else (old,))))
            return result
        first, *others = result if isinstance(result, cst.FlattenSentinel) else (result,)
        lost = Counter(_comments(_head(old), unsaid=unsaid))
        lost -= Counter(_comments(_head(first), *others))
        lines = [*_lines(below), *first.leading_lines, *_lines(lost.elements())]
        below.clear()
        if len(lines) == len(first.leading_lines):
            return result
        first = first.with_changes(leading_lines=lines)
        return cst.FlattenSentinel([first, *others]) if others else first

    return kept


def _block(edit: Edit | None, old: cst.IndentedBlock | cst.Module, below: Sequence[str]) -> Edit:
    """An edit of a block that keeps the comments of what is left out at its end.

    Nor does what is left out at its beginning leave blank lines.
    """

    def kept(new: Any) -> Any:
        result = edit(new) if edit is not None else new
        if below:
            result = result.with_changes(footer=[*_lines(below), *result.footer])
        if isinstance(old, cst.Module) or not result.body or _blank(old.body[0]):
            return result
        first = result.body[0]
        return result.with_changes(
            body=[
                first.with_changes(leading_lines=first.leading_lines[_blank(first) :]),
                *result.body[1:],
            ]
        )

    return kept


def _blank(statement: Any) -> int:
    """How many blank lines stand above a statement and its comments."""
    lines = getattr(statement, "leading_lines", ())
    return next((n for n, line in enumerate(lines) if line.comment is not None), len(lines))


def _head(statement: Any) -> cst.CSTNode:
    """What of a statement is translated with it; its body is statements of their own."""
    name = HEADS.get(type(statement))
    head: cst.CSTNode = getattr(statement, name) if name is not None else statement
    return head


def _comments(*nodes: cst.CSTNode, unsaid: Collection[cst.Comment] = ()) -> Iterator[str]:
    """The comments in nodes, but for those that tools read."""
    for node in nodes:
        for each in matchers.findall(node, matchers.Comment()):
            assert isinstance(each, cst.Comment)
            if each not in unsaid and not FOR_TOOLS.match(each.value):
                yield each.value


def _lines(comments: Any) -> list[cst.EmptyLine]:
    return [cst.EmptyLine(comment=cst.Comment(each)) for each in comments]
