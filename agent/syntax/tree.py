"""Walking a tree, without asking what its names mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache, lru_cache
from typing import TypeVar

import libcst as cst

WHITESPACE = (cst.BaseParenthesizableWhitespace, cst.TrailingWhitespace, cst.EmptyLine)
Node = TypeVar("Node", bound=cst.CSTNode)


def descendants(node: cst.CSTNode, kind: type[Node]) -> Iterator[Node]:
    """The nodes of one kind below a node and itself, in the order of the file."""
    return iter(_found(node, kind))


def names_in(node: cst.CSTNode) -> set[str]:
    """The names that a node mentions."""
    return {n.value for n in descendants(node, cst.Name)}


@lru_cache(maxsize=2**14)
def _found(node: cst.CSTNode, kind: type[Node]) -> tuple[Node, ...]:
    kinds = _kinds(kind)
    return tuple(here for here in _below(node) if type(here) in kinds)  # type: ignore[misc]


@lru_cache(maxsize=2**12)
def _below(node: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
    found = []
    left = [node]
    while left:
        here = left.pop()
        found.append(here)
        left.extend(reversed(children(here)))
    return tuple(found)


@lru_cache(maxsize=2**16)
def children(node: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
    """A node's children but for whitespace, in the order of the file.

    To find them, LibCST makes a copy of the node. In what order it takes the fields is therefore
    asked of the first node of a class only.
    """
    visited, others = _fields(node)
    if any(_nodes(getattr(node, field)) for field in others):
        found = node.children  # it takes a field that it did not take in the first node
    else:
        found = [child for field in visited for child in _nodes(getattr(node, field))]
    whitespace = _whitespace()
    return tuple(child for child in found if type(child) not in whitespace)


def _nodes(value: object) -> Sequence[cst.CSTNode]:
    if type(value) in _kinds(cst.CSTNode):
        return (value,)  # type: ignore[return-value]
    return value if isinstance(value, tuple | list) else ()


@cache
def _kinds(kind: type[cst.CSTNode]) -> frozenset[type]:
    """A class and those below it. They are abstract, for which `isinstance` is slow."""
    return frozenset((kind,)).union(*(_kinds(below) for below in kind.__subclasses__()))


@cache
def _whitespace() -> frozenset[type]:
    return frozenset().union(*map(_kinds, WHITESPACE))


_FIELDS: dict[type[cst.CSTNode], tuple[tuple[str, ...], tuple[str, ...]]] = {}


def _fields(node: cst.CSTNode) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fields that are visited, in order, and the other ones."""
    kind = type(node)
    if kind not in _FIELDS:
        order = _Order(node)
        node.visit(order)
        others = {field.name for field in fields(kind)} - set(order.visited)
        _FIELDS[kind] = tuple(order.visited), tuple(others)
    return _FIELDS[kind]


class _Order(cst.CSTVisitor):
    def __init__(self, node: cst.CSTNode) -> None:
        super().__init__()
        self.node = node
        self.visited: list[str] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        return node is self.node

    def on_visit_attribute(self, node: cst.CSTNode, attribute: str) -> None:  # noqa: ARG002
        self.visited.append(attribute)


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


def assigned_each(
    node: cst.CSTNode,
) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """The same, element by element where a tuple is assigned to one of as many."""
    for target, value in assigned(node):
        yield from _each(target, value)


def _each(
    target: cst.BaseExpression, value: cst.BaseExpression
) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression]]:
    match target, value:
        case (
            cst.Tuple(elements=names) | cst.List(elements=names),
            cst.Tuple(elements=values) | cst.List(elements=values),
        ) if len(names) == len(values):
            for name, given in zip(names, values, strict=True):
                yield from _each(name.value, given.value)
        case _:
            yield target, value


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


def sole_value(statement: cst.CSTNode) -> cst.BaseExpression | None:
    """The value of `a = value`; None for `a = b = value`, which two names share."""
    if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
        return statement.value
    return None


def value_of_target(
    target: cst.CSTNode, parents: Mapping[cst.CSTNode, cst.CSTNode]
) -> cst.BaseExpression | None:
    """The right-hand side of `target = value` or of its element of `a, b = x, y`."""
    parent = parents.get(target)
    if isinstance(parent, cst.AnnAssign):
        return parent.value
    if isinstance(parent, cst.AssignTarget):
        return sole_value(parents[parent])
    if isinstance(parent, cst.Element):
        several = parents[parent]
        around = parents.get(several)
        value = sole_value(parents[around]) if isinstance(around, cst.AssignTarget) else None
        if (
            isinstance(several, cst.Tuple | cst.List)
            and isinstance(value, cst.Tuple | cst.List)
            and len(value.elements) == len(several.elements)
            and all(isinstance(e, cst.Element) for e in (*value.elements, *several.elements))
        ):
            return value.elements[several.elements.index(parent)].value
    return None
