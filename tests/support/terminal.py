"""A terminal that a program is run on: what it shows, what has scrolled away, and its cursor."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from tests.support.project import MAIN

_PIECE = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b([78])|([\r\n\x07])|([^\x1b\r\n\x07]+)")
_PARTIAL = re.compile(r"\x1b(\[[?\d;]*)?$")
_OWN_TERMINAL = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
"""Makes standard input the terminal whose Ctrl-C the process gets."""


class Screen:
    """Rows of characters, as escape sequences leave them; lines are not wrapped anew."""

    def __init__(self, columns: int, rows: int) -> None:
        """An empty one."""
        self.columns, self.rows = columns, rows
        self.history: list[str] = []
        self.lines = [""]
        """From the top of the screen; those that nothing was written to yet are missing."""
        self.row = self.column = 0
        self.saved = (0, 0)
        self.cursor_shown = True
        self.updating = False
        """Whether a drawing has begun and not ended; a terminal that knows the mark waits."""

    def feed(self, text: str) -> None:
        """What the program writes, in whole sequences."""
        for match in _PIECE.finditer(text):
            params, final, saving, control, plain = match.groups()
            if plain:
                self._write(plain)
            elif control == "\r":
                self.column = 0
            elif control == "\n":
                self._to(self.row + 1)
            elif saving == "7":
                self.saved = (self.row, self.column)
            elif saving == "8":
                self.row, self.column = self.saved
            elif final:
                self._sequence(params, final)

    def resize(self, columns: int, rows: int) -> None:
        """Another size, where the cursor's row stays in sight."""
        self.columns, self.rows = columns, rows
        while self.row >= rows:
            self._scroll()
        del self.lines[rows:]

    @property
    def text(self) -> str:
        """Everything, what has scrolled away first."""
        return "\n".join(line.rstrip() for line in (*self.history, *self.lines)).rstrip("\n")

    def _sequence(self, params: str, final: str) -> None:
        number = int(params) if params.isdigit() else 1
        if final == "A":
            self.row = max(0, self.row - number)
        elif final == "B":
            self.row = min(self.rows - 1, self.row + number)
            self.lines += [""] * (self.row + 1 - len(self.lines))
        elif final == "K":
            self.lines[self.row] = self.lines[self.row][: self.column]
        elif final == "J":
            self.lines[self.row] = self.lines[self.row][: self.column]
            del self.lines[self.row + 1 :]
        elif final in "hl" and params == "?25":
            self.cursor_shown = final == "h"
        elif final in "hl" and params == "?2026":
            self.updating = final == "h"
        else:
            assert final == "m", (params, final)

    def _write(self, text: str) -> None:
        for letter in text:
            if self.column == self.columns:
                self.column = 0
                self._to(self.row + 1)
            line = self.lines[self.row].ljust(self.column)
            self.lines[self.row] = line[: self.column] + letter + line[self.column + 1 :]
            self.column += 1

    def _to(self, row: int) -> None:
        self.row = row
        if row == self.rows:
            self._scroll()
        self.lines += [""] * (self.row + 1 - len(self.lines))

    def _scroll(self) -> None:
        self.history.append(self.lines.pop(0))
        self.row -= 1


class OnTerminal:
    """tile-agent on a terminal of its own."""

    def __init__(self, folder: Path, *arguments: str, columns: int = 80, rows: int = 24) -> None:
        """Start it.

        Args:
            folder: where it runs.
            arguments: of the command line.
            columns: of the terminal.
            rows: of the terminal.
        """
        self.screen = Screen(columns, rows)
        self._outer, inner = os.openpty()
        self._set_size(columns, rows)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _OWN_TERMINAL + MAIN, *arguments],
            cwd=folder,
            env={**os.environ, "TERM": "xterm-256color"},
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
        )
        os.close(inner)
        self._rest = ""
        self.written = ""
        """All that the program wrote."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._outer)

    def until(self, found: Callable[[str], bool], timeout_s: float = 120.0) -> str:
        """Wait until what is on the screen, drawn to its end, is so; returns that."""
        deadline = time.monotonic() + timeout_s
        while not found(shown := "\n".join(self.screen.lines)) or self.screen.updating:
            assert time.monotonic() < deadline, self.screen.text
            assert self._read(), self.screen.text
        return shown

    def until_it_ends(self, timeout_s: float = 120.0) -> int:
        """Wait for its end; returns the exit code."""
        deadline = time.monotonic() + timeout_s
        while self._read():
            assert time.monotonic() < deadline, self.screen.text
        return self.process.wait(timeout=30)

    def press(self, keys: bytes) -> None:
        """What a person types."""
        os.write(self._outer, keys)

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size, between two drawings: none is for the one before it."""
        before = len(self.written)
        while len(self.written) == before:
            assert self._read(), self.screen.text
        self.process.send_signal(signal.SIGSTOP)  # it may draw twice in a row
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
        while select.select([self._outer], [], [], 0)[0]:
            assert self._read(), self.screen.text
        self.screen.resize(columns, rows)
        self._set_size(columns, rows)
        self.process.send_signal(signal.SIGCONT)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._outer, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read(self) -> bool:
        """Take in what was written; whether there may be more."""
        if not select.select([self._outer], [], [], 0.2)[0]:
            return True
        try:
            chunk = os.read(self._outer, 65536)
        except OSError:  # what Linux says when the other end is closed
            return False
        self._rest += chunk.decode(errors="replace")
        self.written += chunk.decode(errors="replace")
        cut = match.start() if (match := _PARTIAL.search(self._rest)) else len(self._rest)
        whole, self._rest = self._rest[:cut], self._rest[cut:]
        self.screen.feed(whole)
        return bool(chunk)


def lines_beginning(text: str, words: Sequence[str]) -> list[str]:
    """The lines of a text that begin with one of these words."""
    return [line for line in text.splitlines() if line.split(" ", 1)[0] in words]
