"""Calls of tile-agent in a shell's text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

COMMAND = "tile-agent"
SHELLS = ("sh", "bash", "shell", "console")
_OPERATORS = frozenset("();<>|&")


def calls(shell: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Line, counted from 0, and arguments of each call; redirections and other commands left out.

    Raises:
        ValueError: a quotation is not closed.
    """
    number = 0
    pending = ""
    for n, line in enumerate(shell.splitlines()):
        number = number if pending else n
        pending += line.removeprefix("$ ") if not pending else line
        if pending.endswith("\\"):
            pending = pending[:-1] + " "
            continue
        for words in _commands(pending):
            if PurePosixPath(words[0]).name == COMMAND:
                yield number, tuple(words[1:])
        pending = ""


def _commands(line: str) -> Iterator[list[str]]:
    """The simple commands of a line, without assignments before and redirections behind."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    redirected = False
    for token in lexer:
        if set(token) <= _OPERATORS:
            redirected = set(token) & {"<", ">"} != set()
            if redirected and words and words[-1].isdigit():
                words.pop()  # the descriptor of `2> log`
            if not redirected:
                yield from _command(words)
                words = []
        elif redirected:
            redirected = False
        else:
            words.append(token)
    yield from _command(words)


def _command(words: Sequence[str]) -> Iterator[list[str]]:
    start = 0
    while (
        start < len(words)
        and words[start].partition("=")[0].isidentifier()
        and ("=" in words[start])
    ):
        start += 1
    if start < len(words):
        yield list(words[start:])
