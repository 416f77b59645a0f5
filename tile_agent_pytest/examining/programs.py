"""Which programs and processes the code of a file starts: a kernel has no need of any.

Python tells of them by audit events, and who is told cannot be sent away again. What Triton or
cuTile start to compile it (`ptxas`, a C compiler) is their own affair, and so are the processes in
which a search's configs are compiled.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from types import FrameType
from typing import Any

from tile_agent_pytest import compiled_ahead_cutile

EVENTS = frozenset(
    {
        *("os.system", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.spawn"),
        *("pty.spawn", "subprocess.Popen"),
    }
)
_COMPILERS = ("triton", "cuda")
"""Packages that start processes on behalf of a kernel."""


class StartedPrograms:
    """What the code of one file has started, from now to the end of this process."""

    def __init__(self, file_name: str) -> None:
        """Take the name of the file, without its folder."""
        self._file_name = file_name
        self._found: set[str] = set()
        self._compilers = tuple(folder + os.sep for name in _COMPILERS for folder in _folders(name))
        self._ahead = compiled_ahead_cutile.compile_search_first.__code__
        sys.addaudithook(self._told)

    def found(self) -> list[str]:
        """The audit events that were seen, 'os.system' and the like."""
        return sorted(self._found)

    def _told(self, event: str, _: tuple[Any, ...]) -> None:
        if event in EVENTS and self._is_of_the_file(sys._getframe(1)):
            self._found.add(event)

    def _is_of_the_file(self, frame: FrameType | None) -> bool:
        """Whether the file is behind it, and no compiler in between."""
        while frame is not None:
            path = frame.f_code.co_filename
            if path.startswith(self._compilers) or frame.f_code is self._ahead:
                return False
            if path.rpartition(os.sep)[2] == self._file_name:
                return True
            frame = frame.f_back
        return False


def _folders(package: str) -> list[str]:
    """Where a package lies; a namespace may lie in several places."""
    spec = importlib.util.find_spec(package)
    return list(spec.submodule_search_locations or ()) if spec else []
