"""A few lines at the end of a terminal that are kept up to date, below a log that scrolls.

The cursor rests at the first of them and each drawing goes over the last one, in one piece. So
nothing flickers, a terminal that wraps lines anew when it is resized takes the cursor along, and
whoever writes next, this program or a shell, begins where the lines begin. The cursor is hidden
for no longer than a drawing takes: no way to end leaves it hidden.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self, TextIO

Draw = Callable[[int, int], str]
"""Width and height in columns and rows -> the lines."""

EVERY_S = 1.0
LOOK_S = 0.2
"""How soon a new size is seen."""
_BEGIN = "\x1b[?2026h\x1b[?25l\r"
"""Show it when it is whole, hide the cursor, first column."""
_END = "\r\x1b[?25h\x1b[?2026l"
_ERASE_LINE, _ERASE_BELOW = "\x1b[K", "\x1b[J"
_ERASE = f"\x1b7{_ERASE_LINE}\x1b[B\r{_ERASE_BELOW}\x1b8"
"""The line of the cursor, and all below. Not all at once: of a screen that is cleared from its
first row on, tmux puts what was there into its history."""


class LiveLines:
    """The lines, drawn anew each second and whenever the terminal has another size."""

    def __init__(self, file: TextIO, draw: Draw) -> None:
        """Nothing is drawn yet.

        Args:
            file: a terminal.
            draw: makes the lines; a second thread calls it.
        """
        self._file = file
        self._draw = draw
        self._lock = threading.Lock()
        self._size = os.terminal_size((0, 0))
        self._over = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="live-lines", daemon=True)

    def __enter__(self) -> Self:
        self._ticker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the lines away: what is written next begins where they began."""
        self._over.set()
        with self._lock:
            self._write(_BEGIN + _ERASE + _END)

    def log(self, text: str) -> None:
        """Write above the lines, to stay.

        Args:
            text: as the terminal takes it, without its last newline.
        """
        with self._lock:
            self._write(f"{_BEGIN}{_ERASE}{text}\n{self._lines()}{_END}")

    def draw(self) -> None:
        """Draw the lines anew."""
        with self._lock:
            if not self._over.is_set():
                self._write(f"{_BEGIN}{self._lines()}{_END}")

    def _lines(self) -> str:
        """The lines, and the way back to the first of them.

        They are a column short of the width, and a row of the height: at the last one of either a
        terminal would scroll, or wrap. Where the size changed while they were made, they are made
        anew: of lines that wrapped nobody knows where the first begins.
        """
        size = os.terminal_size((0, 0))
        while size != (now := self._terminal_size()):
            columns, rows = size = now
            drawn = self._draw(columns - 1, rows - 1).splitlines()[: max(1, rows - 1)]
        resized = _ERASE if size != self._size else ""
        self._size = size
        lines = [line.rstrip(" ") for line in drawn]  # less to wrap when it is made narrower
        back = f"\x1b[{len(lines) - 1}A" if len(lines) > 1 else ""
        return resized + f"{_ERASE_LINE}\n".join(lines) + _ERASE_LINE + _ERASE_BELOW + back

    def _tick(self) -> None:
        drawn = 0.0
        while not self._over.wait(LOOK_S):
            if time.monotonic() - drawn >= EVERY_S or self._terminal_size() != self._size:
                drawn = time.monotonic()
                self.draw()

    def _terminal_size(self) -> os.terminal_size:
        with suppress(OSError):
            size = os.get_terminal_size(self._file.fileno())
            if size.columns > 1 and size.lines > 1:
                return size
        return os.terminal_size((80, 24))

    def _write(self, text: str) -> None:
        with suppress(OSError):  # the terminal is gone, and nobody looks any more
            self._file.write(text)
            self._file.flush()
