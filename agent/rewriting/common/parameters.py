"""Parameters that a function takes besides its own, laid out as those are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import libcst as cst

from agent.rewriting.common.elements import Space, uncommented
from agent.rewriting.common.formatting import STEP, WIDTH
from agent.syntax import Source


def taking(
    source: Source, node: cst.FunctionDef, added: Sequence[cst.Param]
) -> Callable[[cst.FunctionDef], cst.FunctionDef]:
    """The edit of a function that takes more parameters; a line too long is broken."""
    indent = source.place(node.name).start.column - len("def ")

    def edit(function: cst.FunctionDef) -> cst.FunctionDef:
        listed = function.params
        kind = "kwonly_params" if listed.kwonly_params else "params"
        together = joined(getattr(listed, kind), added)
        updated = function.with_changes(params=listed.with_changes(**{kind: together}))
        head = updated.with_changes(decorators=(), leading_lines=(), body=_ELLIPSIS)
        lines = source.module.code_for_node(head).splitlines()
        fits = max(indent + len(line) for line in lines) <= WIDTH
        if fits or kind != "params" or any("#" in line for line in lines):
            return updated
        return _one_a_line(updated, together)

    return edit


_ELLIPSIS = cst.SimpleStatementSuite([cst.Expr(cst.Ellipsis())])


def joined(items: Sequence[cst.Param], added: Sequence[cst.Param]) -> list[cst.Param]:
    """A list of parameters with more behind them, laid out as those before.

    A comment stays behind the parameter that it follows.
    """
    if not items:
        return list(added)
    *before, last = items
    comma = before[-1].comma if before else None
    space = comma.whitespace_after if isinstance(comma, cst.Comma) else cst.SimpleWhitespace(" ")
    between = cst.Comma(whitespace_after=uncommented(space))
    tail, closing = last.comma, last.whitespace_after_param
    if isinstance(tail, cst.Comma):
        behind = tail.whitespace_after
        tail = cst.Comma(whitespace_after=uncommented(behind))
    else:
        behind, closing = closing, uncommented(closing)
    joint = cst.Comma(whitespace_after=said_behind(behind, between.whitespace_after))
    last = last.with_changes(comma=joint, whitespace_after_param=cst.SimpleWhitespace(""))
    *middle, end = added
    end = end.with_changes(comma=tail, whitespace_after_param=closing)
    return [*before, last, *(param.with_changes(comma=between) for param in middle), end]


def said_behind(behind: Space, between: Space) -> Space:
    """The comments of what followed the last parameter, as whitespace before the next."""
    if not isinstance(behind, cst.ParenthesizedWhitespace):
        return between
    if isinstance(between, cst.ParenthesizedWhitespace):
        return behind.with_changes(indent=between.indent, last_line=between.last_line)
    if not (behind.first_line.comment or any(line.comment for line in behind.empty_lines)):
        return between
    return behind.with_changes(indent=True, last_line=cst.SimpleWhitespace(" " * STEP))


def _one_a_line(function: cst.FunctionDef, params: Sequence[cst.Param]) -> cst.FunctionDef:
    inside = cst.ParenthesizedWhitespace(indent=True, last_line=cst.SimpleWhitespace(" " * STEP))
    closing = inside.with_changes(last_line=cst.SimpleWhitespace(""))
    between, end = cst.Comma(whitespace_after=inside), cst.Comma(whitespace_after=closing)
    *before, last = params
    broken = [*(p.with_changes(comma=between) for p in before), last.with_changes(comma=end)]
    broken = [p.with_changes(whitespace_after_param=cst.SimpleWhitespace("")) for p in broken]
    return function.with_changes(
        whitespace_before_params=inside, params=function.params.with_changes(params=broken)
    )
