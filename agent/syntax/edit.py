"""Editing a source file: replace nodes, and keywords of calls, and nothing around them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, TypeVar, cast

import libcst as cst

Node = TypeVar("Node", bound=cst.CSTNode)
Edits = Mapping[Any, Callable[[Any], cst.CSTNode]]
"""A node of the tree -> what becomes of it. The function is given the node as the edits below it
have left it, so that a call inside an edited call may be edited as well."""


def apply_edits(module: cst.Module, edits: Edits, around: Collection[cst.CSTNode]) -> str:
    """The text of the module after the edits, given the nodes around those that are edited."""
    new = module.visit(_Editor(edits, around))
    if not new.has_trailing_newline or not new.body:
        return new.code
    unchanged = {*module.body, *module.header, *module.footer}
    return "".join(
        _code(module, part) if part in unchanged else module.code_for_node(part)
        for part in (*new.header, *new.body, *new.footer)
    )


@lru_cache(maxsize=2**12)
def _code(module: cst.Module, part: cst.CSTNode) -> str:
    """The text of a part of a module, which most of the edits leave as it is."""
    return module.code_for_node(part)


def edited(node: Node, edits: Edits) -> Node:
    """A copy of a node after the edits of what is inside it."""
    return cast(Node, node.visit(_Editor(edits)))


class _Editor(cst.CSTTransformer):
    def __init__(self, edits: Edits, around: Collection[cst.CSTNode] | None = None) -> None:
        super().__init__()
        self.edits = edits
        self.around = around

    def on_visit(self, node: cst.CSTNode) -> bool:
        return self.around is None or node in self.around

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        edit = self.edits.get(original_node)
        return edit(updated_node) if edit else updated_node


def keyword(call: cst.Call, name: str) -> cst.BaseExpression | None:
    """The value of a keyword argument."""
    return next((a.value for a in call.args if a.keyword and a.keyword.value == name), None)


def with_keyword(call: cst.Call, name: str, value: str) -> cst.Call:
    """The call with a keyword argument set: in place when it is there, at the end when not."""
    if keyword(call, name) is None:
        return append_keyword(call, name, value)
    return call.with_changes(
        args=[
            arg.with_changes(value=cst.parse_expression(value))
            if arg.keyword and arg.keyword.value == name
            else arg
            for arg in call.args
        ]
    )


def setting(name: str, value: str) -> Callable[[cst.Call], cst.Call]:
    """The edit that sets a keyword argument of a call."""
    return lambda call: with_keyword(call, name, value)


def append_keyword(call: cst.Call, name: str, value: str) -> cst.Call:
    """The call with one more keyword argument, laid out as the arguments it has.

    A call with an argument a line gets one more line, with its indentation and trailing comma; a
    comment behind the last argument stays behind it.
    """
    added = cst.Arg(
        keyword=cst.Name(name),
        value=cst.parse_expression(value),
        equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")),
    )
    if not call.args:
        return call.with_changes(args=[added])
    *before, last = call.args
    if isinstance(last.comma, cst.Comma):
        tail = last.comma.whitespace_after
        comma: cst.Comma | None = last.comma
    else:
        tail = last.whitespace_after_arg
        comma = None
    separator = _separator(call)
    joined = last.with_changes(
        comma=(comma or cst.Comma()).with_changes(whitespace_after=_with_comment(separator, tail)),
        whitespace_after_arg=cst.SimpleWhitespace(""),
    )
    closing = _without_comment(tail)
    if comma is None:
        added = added.with_changes(whitespace_after_arg=closing)
    else:
        added = added.with_changes(comma=cst.Comma(whitespace_after=closing))
    return call.with_changes(args=[*before, joined, added])


Whitespace = cst.BaseParenthesizableWhitespace


def _separator(call: cst.Call) -> Whitespace:
    """The whitespace before the last argument, which the new one repeats."""
    if len(call.args) == 1:
        opening = call.whitespace_before_args
        if isinstance(opening, cst.ParenthesizedWhitespace):
            return _without_comment(opening)
        return cst.SimpleWhitespace(" ")
    comma = call.args[-2].comma
    return _without_comment(comma.whitespace_after) if isinstance(comma, cst.Comma) else _SPACE


def _with_comment(separator: Whitespace, tail: Whitespace) -> Whitespace:
    """The separator, keeping the comment that follows the argument before it."""
    if not isinstance(tail, cst.ParenthesizedWhitespace) or not _has_comment(tail):
        return separator
    indented = separator if isinstance(separator, cst.ParenthesizedWhitespace) else tail
    return tail.with_changes(indent=indented.indent, last_line=indented.last_line)


def _without_comment(whitespace: Whitespace) -> Whitespace:
    if not isinstance(whitespace, cst.ParenthesizedWhitespace):
        return whitespace
    newline = whitespace.first_line.newline
    return whitespace.with_changes(
        first_line=cst.TrailingWhitespace(cst.SimpleWhitespace(""), None, newline), empty_lines=[]
    )


def _has_comment(whitespace: cst.ParenthesizedWhitespace) -> bool:
    below = any(line.comment for line in whitespace.empty_lines)
    return below or whitespace.first_line.comment is not None


_SPACE = cst.SimpleWhitespace(" ")
