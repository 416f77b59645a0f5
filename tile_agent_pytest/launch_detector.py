"""Whether kernels of the file under judgement are launched at all.

A candidate that computes its result elsewhere, by a library or from an earlier call, can be right
and fast. While the block of a `LaunchDetector` lasts, every launch by Triton, by its interpreter
and by cuTile is looked at; outside of it nothing is replaced, so that no timing pays for it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock


class LaunchDetector:
    """Sees the launches of kernels that a file of some name defines."""

    def __init__(self, file_name: str) -> None:
        """Take the name of the kernel's file, without its folder."""
        self._file_name = file_name
        self.seen = False
        """Whether there was one in the last block."""

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Look at every launch while the block lasts."""
        self.seen = False
        with contextlib.ExitStack() as stack:
            for owner, name, function_of in _launchers():
                original = getattr(owner, name)
                watched = self._watched(original, function_of)
                stack.enter_context(mock.patch.object(owner, name, watched))
            yield

    def _watched(
        self, original: Callable[..., Any], function_of: Callable[..., Any]
    ) -> Callable[..., Any]:
        def launch(*args: Any, **kwargs: Any) -> Any:
            code = getattr(function_of(*args, **kwargs), "__code__", None)
            if code is not None and Path(code.co_filename).name == self._file_name:
                self.seen = True
            return original(*args, **kwargs)

        return launch


def _launchers() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """Owner and name of what launches, and which function it launches; of loaded modules only."""
    if (jit := sys.modules.get("triton.runtime.jit")) is not None:
        yield jit.JITFunction, "run", lambda kernel, *_, **__: kernel.fn
    if (interpreter := sys.modules.get("triton.runtime.interpreter")) is not None:
        yield interpreter.GridExecutor, "__call__", lambda executor, *_, **__: executor.fn
    if (tile := sys.modules.get("cuda.tile")) is not None:
        yield tile, "launch", _of_cutile


def _of_cutile(
    _stream: Any = None, _grid: Any = None, kernel: Any = None, *_: Any, **__: Any
) -> Any:
    return getattr(getattr(kernel, "_annotated_function", None), "pyfunc", None)
