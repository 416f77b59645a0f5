"""Lines that are kept up to date at the end of a terminal."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import termios
from collections.abc import Iterator
from typing import TextIO

import pytest

from agent.cli.live_lines import LiveLines
from tests.support.terminal import Screen


class Terminal:
    """One that this process writes to itself."""

    def __init__(self) -> None:
        """Of the common size."""
        self._outer, inner = os.openpty()
        self.file: TextIO = os.fdopen(inner, "w")
        self.screen = Screen(80, 24)
        self.resize(80, 24)

    def resize(self, columns: int, rows: int) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._outer, termios.TIOCSWINSZ, size)
        self.screen.resize(columns, rows)

    def shown(self) -> list[str]:
        while select.select([self._outer], [], [], 0)[0]:
            self.screen.feed(os.read(self._outer, 65536).decode())
        return [line.rstrip() for line in self.screen.text.splitlines()]

    def close(self) -> None:
        self.file.close()
        os.close(self._outer)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    one = Terminal()
    yield one
    one.close()


def test_a_size_that_changes_while_lines_are_made(terminal: Terminal) -> None:
    sizes = [(30, 10), (200, 50), (20, 5)]

    def draw(columns: int, rows: int) -> str:
        if sizes:
            terminal.resize(*sizes.pop())
        return "\n".join(f"{line} ".ljust(columns, ".") for line in range(min(3, rows)))

    lines = LiveLines(terminal.file, draw)
    lines.log("a line of the log")
    assert terminal.shown() == ["a line of the log", *(f"{n} ".ljust(29, ".") for n in range(3))]
    lines.log("another")
    assert terminal.shown()[:3] == ["a line of the log", "another", "0 ".ljust(29, ".")]
    with lines:
        pass
    assert terminal.shown() == ["a line of the log", "another"]
