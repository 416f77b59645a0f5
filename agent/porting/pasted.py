"""Expressions of the host's that the port writes at another place, or on one line."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
from libcst.metadata.scope_provider import ImportAssignment

from agent.porting.context import Context
from agent.syntax import Source, descendants


def on_one_line(module: cst.Module, node: cst.BaseExpression) -> str:
    """The text of an expression on one line, without its comments; strings stay as they are."""
    flat = node.visit(_Unbroken())
    assert isinstance(flat, cst.CSTNode)
    return module.code_for_node(flat).strip()


def brought(context: Context, node: cst.BaseExpression, place: cst.CSTNode) -> cst.BaseExpression:
    """An expression as it can be written at another place: a default at a call, for one.

    Raises:
        NotPortable: a name of it is another variable there, or may hold another value by then.
    """
    name = _captured(context.source, node, place)
    if name is None:
        return node
    behind = context.source.resolve(node)
    if isinstance(behind, cst.Integer | cst.Float):
        return behind
    raise context.refuse(
        place, "a default or a config with a name that means something else at the call",
        "pass it at the call, or rename one of the two", name,
    )  # fmt: skip


def _captured(source: Source, node: cst.BaseExpression, place: cst.CSTNode) -> str | None:
    """A name of an expression that is another variable at a place, or is assigned several times."""
    around = source.scope(place)
    for name in _free_names(source, node):
        here = source.scope(name)
        if here is None or around is None:
            continue
        meant = frozenset(here[name.value])
        if frozenset(around[name.value]) != meant:
            return name.value
        if sum(not isinstance(each, ImportAssignment) for each in meant) > 1:
            return name.value
    return None


def _free_names(source: Source, node: cst.BaseExpression) -> Iterator[cst.Name]:
    """The names that an expression reads from around it."""
    lambdas = descendants(node, cst.Lambda)
    bound = {p.name.value for each in lambdas for p in descendants(each.params, cst.Param)}
    for name in descendants(node, cst.Name):
        if source.scope(name) is not None and name.value not in bound:
            yield name


class _Unbroken(cst.CSTTransformer):
    def leave_ParenthesizedWhitespace(  # noqa: N802
        self,
        _: cst.ParenthesizedWhitespace,
        updated_node: cst.ParenthesizedWhitespace,  # noqa: ARG002
    ) -> cst.SimpleWhitespace:
        return cst.SimpleWhitespace(" ")

    def leave_SimpleWhitespace(  # noqa: N802
        self, _: cst.SimpleWhitespace, updated_node: cst.SimpleWhitespace
    ) -> cst.SimpleWhitespace:
        return cst.SimpleWhitespace(" ") if len(updated_node.value) > 1 else updated_node

    def leave_LeftParen(self, _: cst.LeftParen, updated_node: cst.LeftParen) -> cst.LeftParen:  # noqa: N802
        return updated_node.with_changes(whitespace_after=cst.SimpleWhitespace(""))

    def leave_RightParen(self, _: cst.RightParen, updated_node: cst.RightParen) -> cst.RightParen:  # noqa: N802
        return updated_node.with_changes(whitespace_before=cst.SimpleWhitespace(""))

    def leave_Call(self, _: cst.Call, updated_node: cst.Call) -> cst.Call:  # noqa: N802
        if not updated_node.args:
            return updated_node.with_changes(whitespace_before_args=cst.SimpleWhitespace(""))
        last = updated_node.args[-1].with_changes(
            comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=cst.SimpleWhitespace("")
        )
        return updated_node.with_changes(
            whitespace_before_args=cst.SimpleWhitespace(""), args=[*updated_node.args[:-1], last]
        )
