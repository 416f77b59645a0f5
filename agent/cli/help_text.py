"""What `--help` prints: every name and every word of it, within the width of the terminal.

rich, which typer draws its help with, takes longer to load than all else that a help needs, and its
columns cut off what does not fit.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import typer

MOST_COLUMNS = 100
FEWEST_COLUMNS = 40
NAME_COLUMNS = 26
"""A longer name has a line of its own, above its text."""


def with_plain_help(command: Any) -> Any:
    """The command, and the commands below it, with the help of this module."""
    command.format_help = partial(write_help, command)
    for inner in getattr(command, "commands", {}).values():
        with_plain_help(inner)
    return command


def write_help(command: Any, ctx: Any, formatter: Any) -> None:
    """Write the help of a command, as click asks for it."""
    columns = shutil.get_terminal_size().columns
    formatter.width = max(FEWEST_COLUMNS, min(columns, MOST_COLUMNS))
    command.format_usage(ctx, formatter)
    command.format_help_text(ctx, formatter)
    for title, rows in _sections(command, ctx).items():
        formatter.write(f"\n{_strong(f'{title}:')}\n")
        for line in _lines(rows, formatter.width):
            formatter.write(f"{line}\n")


def _sections(command: Any, ctx: Any) -> dict[str, list[tuple[str, str]]]:
    """Title -> name and text of each argument, option or command."""
    found: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(ctx):
        if record := param.get_help_record(ctx):
            usual = "Arguments" if param.param_type_name == "argument" else "Options"
            found.setdefault(getattr(param, "rich_help_panel", None) or usual, []).append(record)
    if hasattr(command, "list_commands"):
        for name in command.list_commands(ctx):
            text = command.get_command(ctx, name).help or ""
            found.setdefault("Commands", []).append((name, text.split("\n\n")[0]))
    return found


def _lines(rows: Iterable[tuple[str, str]], width: int) -> Iterator[str]:
    """Names to the left, their texts to the right or below."""
    rows = list(rows)
    column = max((len(name) for name, _ in rows if len(name) <= NAME_COLUMNS), default=0)
    indent = " " * (column + 4)
    for name, text in rows:
        told = textwrap.wrap(
            " ".join(text.split()),
            width - len(indent),
            break_long_words=False,
            break_on_hyphens=False,
        )
        if len(name) > column:
            yield f"  {_strong(name)}"
        else:
            first = told.pop(0) if told else ""
            yield f"  {_strong(name)}{' ' * (column - len(name) + 2)}{first}".rstrip()
        yield from (f"{indent}{line}" for line in told)


def _strong(text: str) -> str:
    """In bold on a terminal that has it; a pipe gets the text alone."""
    if os.environ.get("TERM", "dumb") == "dumb" or not sys.stdout.isatty():
        return text
    return typer.style(text, bold=True)
