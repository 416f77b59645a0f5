"""What several versions of one text differ in: constants, by the names that they have there."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent.syntax.source import BYTE_ORDER_MARK

MOST_CHARACTERS = 60
"""Of the values in a title."""


def values_of(texts: Sequence[str], called: Sequence[str] = ()) -> tuple[Mapping[str, Any], ...]:
    """Name -> value, for each of several texts that parse.

    The names are those of variables, arguments and keys. Texts that differ in more than constants
    are told by what they are called, or else by numbers, from "1"; one that stands alone has no
    values.

    Args:
        texts: at least one.
        called: what each of them is called; may be empty.
    """
    if len(texts) == 1:
        return ({},)
    values: list[dict[str, Any]] = [{} for _ in texts]
    if len({_without_constants(text) for text in texts}) == 1:
        trees = (ast.parse(text.removeprefix(BYTE_ORDER_MARK)) for text in texts)
        for place in zip(*map(_constants, trees), strict=True):
            told = [value for _, value in place]
            if len(set(map(repr, told))) > 1:
                _add(values, place[0][0], told)
    if len(set(map(repr, values))) == len(texts):
        return tuple(values)
    numbers = [str(number) for number in range(1, len(texts) + 1)]
    distinct = len(set(called)) == len(texts)
    return tuple({"variant": name} for name in (called if distinct else numbers))


def in_words(values: Mapping[str, Any]) -> str:
    """What a title ends with; nothing for a text that stands alone."""
    told = ", ".join(f"{name}={value}" for name, value in values.items())
    return f"({told[:MOST_CHARACTERS]})" if values else ""


def _add(values: Sequence[dict[str, Any]], name: str, told: Sequence[Any]) -> None:
    """One place of each text; the same name with the same values elsewhere is the same thing."""
    number, free = 1, name
    while free in values[0] and [each[free] for each in values] != list(told):
        number += 1
        free = f"{name} {number}"
    for each, value in zip(values, told, strict=True):
        each[free] = value


def _constants(node: ast.AST, name: str = "value") -> Iterator[tuple[str, Any]]:
    """Each constant of a tree with what it is called, in a fixed order; no docstrings."""
    match node:
        case ast.Constant(value=value):
            yield name, value if isinstance(value, str | int | float) else repr(value)
            return
        case ast.Expr(value=ast.Constant()):
            return
        case ast.Assign(targets=[ast.Name(id=name), *_], value=value):
            yield from _constants(value, name)
            return
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.keyword(arg=str(name)):
            pass
        case ast.arguments():
            positional = [*node.posonlyargs, *node.args]
            with_default = positional[len(positional) - len(node.defaults) :]
            arguments = [*with_default, *node.kwonlyargs]
            defaults = [*node.defaults, *node.kw_defaults]
            for argument, default in zip(arguments, defaults, strict=True):
                if default is not None:
                    yield from _constants(default, argument.arg)
            return
        case ast.Dict():
            for key, each in zip(node.keys, node.values, strict=True):
                called = key.value if isinstance(key, ast.Constant) else None
                yield from _constants(each, called if isinstance(called, str) else name)
            return
    for child in ast.iter_child_nodes(node):
        yield from _constants(child, name)


def _without_constants(text: str) -> str:
    tree = ast.parse(text.removeprefix(BYTE_ORDER_MARK))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            node.value, node.kind = None, None
    return ast.dump(tree)
