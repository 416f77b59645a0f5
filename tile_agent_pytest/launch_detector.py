"""Whether kernels of the file under judgement are launched at all.

A candidate that computes its result elsewhere, by a library or from an earlier call, can be right
and fast. While the block of a `LaunchDetector` lasts, every launch by Triton, by its interpreter
and by cuTile is looked at; outside of it nothing is replaced.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tile_agent_pytest.launch_functions import LaunchFunction, current_stream, wrapped


class LaunchDetector:
    """Sees the launches of kernels that a file of some name defines."""

    def __init__(self, file_name: str) -> None:
        """Take the name of the kernel's file, without its folder."""
        self._file_name = file_name
        self._of_the_file: dict[Any, bool] = {}
        self.launches: list[str] = []
        """The functions that were launched in the last block, in order."""
        self.streams: set[int] = set()
        """The streams of the GPU that they were launched on, with the one of the block's begin."""
        self.threads: set[int] = set()
        """The threads that launched them, with the one of the block's begin."""

    @property
    def seen(self) -> bool:
        """Whether there was a launch in the last block."""
        return bool(self.launches)

    @contextlib.contextmanager
    def watching(self, *, suppress: bool = False) -> Iterator[None]:
        """Look at every launch while the block lasts; or see to it that none happens."""
        self.launches = []
        self.streams = {current_stream()}
        self.threads = {threading.get_ident()}
        with wrapped(partial(self._watched, suppress)):
            yield

    def _watched(
        self, suppress: bool, launcher: LaunchFunction, original: Callable[..., Any]
    ) -> Callable[..., Any]:
        def launch(*args: Any, **kwargs: Any) -> Any:
            function = launcher.function_of(*args, **kwargs)
            code = getattr(function, "__code__", None)
            if code is not None and self._defines(code):
                self.launches.append(function.__name__)
                self.streams.add(launcher.stream_of(*args, **kwargs))
                self.threads.add(threading.get_ident())
                if suppress:
                    return None
            return original(*args, **kwargs)

        return launch

    def _defines(self, code: Any) -> bool:
        """Whether a function's code is of the file; asked at each launch of a timed block."""
        known = self._of_the_file.get(code)
        if known is None:
            known = self._of_the_file[code] = Path(code.co_filename).name == self._file_name
        return known
