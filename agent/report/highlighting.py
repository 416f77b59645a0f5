"""A change of Python text in parts that a page colours; it marks up nothing itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

LONGEST_HIGHLIGHTED = 150_000
"""Characters in a report whose words are coloured; each becomes several in the page. Lines that
were added and removed are told apart in all of it."""

FILE_NAMES = 2
"""Lines at the head of a unified diff."""


@dataclass(frozen=True)
class DiffLine:
    """A line of a unified diff."""

    kind: str
    """'added', 'removed', 'place' or 'same'."""
    parts: tuple[tuple[str, str], ...]
    """What a word is ('' where that is of no interest), and the text."""


class Highlighter:
    """Splits the changes of one report."""

    def __init__(self) -> None:
        """With all that may be coloured still left."""
        self._left = LONGEST_HIGHLIGHTED

    def lines(self, diff: str) -> list[DiffLine]:
        """The lines of a diff."""
        coloured = len(diff) <= self._left
        self._left -= len(diff) if coloured else 0
        found = diff.split("\n")[:-1]
        return [
            DiffLine("place", (("", line),))
            if number < FILE_NAMES or line.startswith("@@")
            else _line(line, coloured=coloured)
            for number, line in enumerate(found)
        ]


def _line(line: str, *, coloured: bool) -> DiffLine:
    kind = {"+": "added", "-": "removed"}.get(line[:1], "same")
    if not coloured or len(line) < 2:
        return DiffLine(kind, (("", line),))
    return DiffLine(kind, (("", line[0]), *_parts(line[1:])))


def _parts(code: str) -> tuple[tuple[str, str], ...]:
    parts: list[tuple[str, str]] = []
    for token, text in _lexer().get_tokens(code):
        kind = _kind(token)
        if parts and parts[-1][0] == kind:
            parts[-1] = (kind, parts[-1][1] + text)
        else:
            parts.append((kind, text))
    return tuple(parts)


@cache
def _lexer() -> Any:
    from pygments.lexers.python import PythonLexer

    return PythonLexer(stripnl=False, ensurenl=False)


def _kind(token: Any) -> str:
    from pygments.token import Comment, Keyword, Name, Number, Operator, String

    for kind, name in (
        (Keyword, "keyword"),
        (Operator.Word, "keyword"),
        (String, "string"),
        (Comment, "comment"),
        (Number, "number"),
        (Name.Decorator, "name"),
        (Name.Function, "name"),
    ):
        if token in kind:
            return name
    return ""
