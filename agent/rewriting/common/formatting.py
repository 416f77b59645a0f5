"""Formats new calls over several lines where one line would be too long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from agent.syntax import Source

WIDTH = 100
STEP = 4


@dataclass(frozen=True)
class NewCall:
    """A call to be written: `ct.reshape` with arguments, which may be calls themselves."""

    function: str
    arguments: Sequence[str | NewCall]

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.arguments))})"


@dataclass(frozen=True)
class Place:
    """Where an expression stands in the source."""

    block: int
    """Indentation of its statement, which LibCST adds to every line by itself."""
    indent: int
    """Indentation of its line."""
    before: int
    """Characters in front of it, the indentation included."""
    behind: int

    @classmethod
    def of(cls, source: Source, node: cst.CSTNode) -> Place:
        """The place of a node that may be replaced."""
        where = source.place(node)
        lines = source.text.splitlines()
        first, last = lines[where.start.line - 1], lines[where.end.line - 1]
        indent = len(first) - len(first.lstrip())
        statements = (
            a
            for a in source.ancestors(node)
            if isinstance(a, cst.SimpleStatementLine | cst.BaseCompoundStatement)
        )
        block = next((source.place(a).start.column for a in statements), 0)
        return cls(block, indent, where.start.column, len(last) - where.end.column)

    def fits(self, text: str) -> bool:
        """Whether a text would keep its line short enough."""
        return self.before + len(text) + self.behind <= WIDTH


def laid_out(call: str | NewCall, place: Place) -> str:
    """The text of a call: on one line; its arguments on a line of their own; or a line each."""
    line = str(call)
    is_broken = "\n" in line
    if isinstance(call, str) or (place.fits(line) and not is_broken):
        return line
    inner = place.indent + STEP
    margin = " " * (inner - place.block)
    listed = ", ".join(map(str, call.arguments))
    if inner + len(listed) <= WIDTH and not is_broken:
        body = margin + listed
    else:
        below = Place(place.block, inner, inner, 1)
        body = "\n".join(f"{margin}{_deeper(a, below)}," for a in call.arguments)
    return f"{call.function}(\n{body}\n{margin[STEP:]})"


def _deeper(argument: str | NewCall, place: Place) -> str:
    """The text of an argument on a line of its own; what is broken already goes further in."""
    text = laid_out(argument, place)
    return text.replace("\n", "\n" + " " * STEP) if isinstance(argument, str) else text
