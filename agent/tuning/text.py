"""Lines of Python as a formatter would leave them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

import libcst as cst

from agent.syntax import Source

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


def replaced(source: Source, node: cst.CSTNode, names: Mapping[cst.Name, str]) -> str:
    """The text of a node on one line, some of its names replaced by expressions."""

    class Editor(cst.CSTTransformer):
        def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> cst.CSTNode:  # type: ignore[override]
            if isinstance(original_node, cst.Name) and original_node in names:
                return cst.parse_expression(names[original_node])
            return updated_node

    edited = node.visit(Editor())
    assert isinstance(edited, cst.CSTNode)
    return source.code(edited)
