"""Keeps a thread on one processor while it is timed.

Processors of one machine differ for seconds at a time: by their clock, and by what runs beside
them on the same core. Two processes that take turns, each on a processor of its own, measure that
difference: on two virtual processors of a shared host, the same code compared with itself was off
by 30 % in a pair of processes (root mean square), and by 6 to 7 % on one processor.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_PROCESSOR_FIELD = 36
"""Of /proc/PID/stat, counted from the state, which follows the name in parentheses."""


class OneProcessor:
    """Where the calling thread runs. Does nothing where the system has no affinities."""

    def __init__(self) -> None:
        self._before: set[int] | None = None

    def stay(self, number: int | None = None) -> int | None:
        """Keep the thread on a processor, the present one if none is named.

        Returns:
            Its number; None if the thread is free to move on.
        """
        try:
            before = os.sched_getaffinity(0)
            chosen = _present() if number is None else number
            os.sched_setaffinity(0, {chosen})
        except (AttributeError, OSError, ValueError, IndexError):
            return None
        self._before = self._before or before
        return chosen

    def leave(self) -> None:
        """Let it run wherever it could before."""
        if self._before is not None:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, self._before)
            self._before = None


def _present() -> int:
    return int(
        Path("/proc/thread-self/stat").read_text().rpartition(")")[2].split()[_PROCESSOR_FIELD]
    )
