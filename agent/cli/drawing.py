"""What a person sees on a terminal: tables with lines, and progress with a word in color.

Everything that is drawn is plain text first: what a pipe, a file or a test gets.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from io import StringIO
from itertools import groupby
from typing import TextIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

_ROW = re.compile(r"\|.*\|")
_CELL = re.compile(r" *(?<!\\)\| *")
STYLES = {
    "keep": "bold green",
    "revert": "yellow",
    "crash": "bold red",
    "held": "bold magenta",
    "tampered": "bold red",
}
"""Of a verdict."""
_WORDS = {"right": "green", **STYLES}
"""Of the word that a line of progress begins with; any other is dim."""
_OF_DIFF = {
    "diff ": "bold",
    "index ": "bold",
    "--- ": "bold",
    "+++ ": "bold",
    "@@": "cyan",
    "+": "green",
    "-": "red",
}
"""By how a line of a unified diff begins."""


def draw_text(text: str) -> None:
    """Print a text to stdout, with its Markdown tables as tables."""
    console = _console(sys.stdout)
    for part in parts(text):
        console.print(part, soft_wrap=isinstance(part, Text))


def draw_diff(diff: str) -> None:
    """Print a unified diff to stdout: what is added, what is removed, and where."""
    console = _console(sys.stdout)
    for line in diff.split("\n"):
        style = next((style for start, style in _OF_DIFF.items() if line.startswith(start)), "")
        console.print(Text(line, style=style), soft_wrap=True)


def draw_progress(line: str, file: TextIO) -> None:
    """Print a line of progress."""
    _console(file).print(labelled(line), soft_wrap=True)


def for_terminal(what: RenderableType, width: int, *, soft_wrap: bool = False) -> str:
    """What a terminal is sent for it, with the escape sequences of its colors."""
    console = Console(
        file=StringIO(),
        width=width,
        force_terminal=True,
        markup=False,
        emoji=False,
        highlight=False,
    )
    with console.capture() as captured:
        console.print(what, soft_wrap=soft_wrap)
    return captured.get()


def parts(text: str) -> Iterator[RenderableType]:
    """The tables of a text, and what stands between them as it is."""
    for tabular, group in groupby(text.split("\n"), lambda line: bool(_ROW.fullmatch(line))):
        lines = list(group)
        cells = [_CELL.split(line.strip("| ")) for line in lines]
        is_table = tabular and len(lines) > 1 and not set("".join(cells[1])) - set(":-")
        yield table(cells) if is_table else Text("\n".join(lines))


def table(cells: list[list[str]]) -> Table:
    """A table of Markdown's cells: head, rule, rows."""
    head, rule, *rows = cells
    found = Table()
    for name, dashes in zip(head, rule, strict=True):
        found.add_column(Text(name), justify="right" if dashes.endswith(":") else "left")
    for row in rows:
        texts = (cell.replace("\\|", "|") for cell in row)
        found.add_row(*(Text(cell, style=_WORDS.get(cell, "")) for cell in texts))
    return found


def labelled(line: str) -> Text:
    """A line of progress with its first word in the color of what it says."""
    found = Text(line)
    if match := re.match(r" *(?:\[ *\d+\] )?([a-z]+)\b", line):
        found.stylize(_WORDS.get(match[1], "dim"), *match.span(1))
    return found


def _console(file: TextIO) -> Console:
    """Neither markup nor emoji codes nor guesses at what numbers are: texts are the user's."""
    return Console(file=file, markup=False, emoji=False, highlight=False)
