"""Walking a tree, without asking what its names mean."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TypeVar

import libcst as cst

WHITESPACE = (cst.BaseParenthesizableWhitespace, cst.TrailingWhitespace, cst.EmptyLine)
Node = TypeVar("Node", bound=cst.CSTNode)


def descendants(node: cst.CSTNode, kind: type[Node]) -> Iterator[Node]:
    """The nodes of one kind below a node and itself, in the order of the file."""
    if isinstance(node, kind):
        yield node
    for child in _children(node):
        yield from descendants(child, kind)


@lru_cache(maxsize=2**16)
def _children(node: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
    """A node's children but for whitespace; LibCST finds them anew, and slowly, on each asking."""
    return tuple(child for child in node.children if not isinstance(child, WHITESPACE))


def is_commented(node: cst.CSTNode) -> bool:
    """Whether a comment stands inside a node. A `#` in a string is taken for one."""
    return "#" in cst.Module([]).code_for_node(node)


def assigned(
    node: cst.CSTNode,
) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """What statements assign: targets and values; a loop's variable is assigned its range."""
    for assign in descendants(node, cst.Assign):
        for target in assign.targets:
            yield target.target, assign.value
    for augmented in descendants(node, cst.AugAssign):
        yield augmented.target, augmented.value
    for annotated in descendants(node, cst.AnnAssign):
        if annotated.value is not None:
            yield annotated.target, annotated.value
    for loop in descendants(node, cst.For):
        yield loop.target, loop.iter


def argument(call: cst.Call, position: int, keyword: str) -> cst.BaseExpression | None:
    """The value a call passes for a parameter, by position or by keyword."""
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value == keyword:
            return arg.value
    values = positional(call)
    return values[position] if position < len(values) else None


def positional(call: cst.Call) -> tuple[cst.BaseExpression, ...]:
    """The positional values before the first `*`."""
    values: list[cst.BaseExpression] = []
    for arg in call.args:
        if arg.keyword is not None or arg.star:
            break
        values.append(arg.value)
    return tuple(values)
