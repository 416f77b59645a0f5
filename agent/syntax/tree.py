"""Walking a tree, without asking what its names mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import libcst as cst

Node = TypeVar("Node", bound=cst.CSTNode)


def descendants(node: cst.CSTNode, kind: type[Node]) -> Iterator[Node]:
    """The nodes of one kind below a node and itself, in the order of the file."""
    if isinstance(node, kind):
        yield node
    for child in node.children:
        yield from descendants(child, kind)


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
