"""Lines of Python as a formatter would leave them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence

import libcst as cst

from agent.syntax import Source, edited

WIDTH = 100
INDENT = " " * 4


def enclosed(head: str, items: Sequence[str], tail: str, indent: str = "") -> str:
    """`head`, items, `tail`: on one line, on one line within, or an item a line, as they fit.

    `head` ends with the opening bracket and `tail` begins with the closing one.
    """
    one = f"{indent}{head}{', '.join(items)}{tail}"
    if len(one) <= WIDTH:
        return one + "\n"
    inside = f"{indent}{INDENT}{', '.join(items)}"
    lines = [inside] if len(inside) <= WIDTH else [f"{indent}{INDENT}{item}," for item in items]
    return "\n".join([f"{indent}{head}", *lines, f"{indent}{tail}"]) + "\n"


def tupled(items: Sequence[str]) -> str:
    """A tuple's source."""
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def comment(text: str, indent: str) -> str:
    """A comment, wrapped."""
    head = f"{indent}# "
    return textwrap.fill(text, WIDTH, initial_indent=head, subsequent_indent=head) + "\n"


def replaced(
    source: Source,
    node: cst.CSTNode,
    names: Mapping[cst.Name, str],
    suffixes: Mapping[cst.CSTNode, str],
) -> str:
    """The text of a node on one line, names in it replaced and texts added behind expressions."""
    edits: dict[cst.CSTNode, Callable[[cst.CSTNode], cst.CSTNode]] = {}
    for place in (*names, *suffixes):
        edits[place] = _writing(source, names.get(place), suffixes.get(place, ""))  # type: ignore[call-overload]
    return source.code(edited(node, edits))


def _writing(source: Source, text: str | None, suffix: str) -> Callable[[cst.CSTNode], cst.CSTNode]:
    def write(node: cst.CSTNode) -> cst.CSTNode:
        return cst.parse_expression((source.code(node) if text is None else text) + suffix)

    return write
