"""Counts the launches of a process, kernel by kernel and tensors by tensors."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

from tile_agent_pytest.capture.elsewhere import held_kernels
from tile_agent_pytest.launch_functions import LaunchFunction, kernel_name
from tile_agent_pytest.launches import tensors_of
from tile_agent_pytest.profiling.gpu_times import BETWEEN_READINGS_S, GpuTimes, is_initialised

MOST_KINDS = 4096
"""Kinds of launches that a process tells apart; further ones are counted without their tensors."""

MOST_LOOKS = 16
"""Launches of a file's kernels of which it is looked at where they come from."""


@dataclass(frozen=True)
class LaunchKind:
    """Launches of a kernel that are given tensors of the same types and shapes."""

    file: str
    kernel: str
    symbol: str
    """What the driver calls it; the function's name where that is not told."""
    tensors: tuple[tuple[str, tuple[int, ...], int], ...]
    """Type, shape and bytes of each; none where they are not known."""


@dataclass
class LaunchCount:
    """How many, and how long the host was in them."""

    count: int = 0
    wall_ms: float = 0.0


class ProcessProfile:
    """Of one process and its forks."""

    def __init__(self, folder: str) -> None:
        """Take a folder for the records."""
        self._folder = Path(folder)
        self.gpu = GpuTimes()
        self._begin()
        atexit.register(self._end)
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        """A process counts for itself; a fork has seen nothing yet."""
        self.gpu.forget()
        self._lock = threading.RLock()
        self._counts: dict[LaunchKind, LaunchCount] = {}
        self._callable: set[str] = set()
        self._looks: Counter[str] = Counter()
        self._main = ""
        self._told = monotonic()
        self._path = self._folder / f"{os.getpid()}-{os.urandom(4).hex()}.jsonl"

    def watching(
        self, launcher: LaunchFunction, original: Callable[..., Any]
    ) -> Callable[..., Any]:
        """What launches, and counts."""

        @functools.wraps(original)
        def launch(*args: Any, **kwargs: Any) -> Any:
            function = launcher.function_of(*args, **kwargs)
            code = getattr(function, "__code__", None)
            if code is None or kwargs.get("warmup"):
                return original(*args, **kwargs)
            file = os.path.realpath(code.co_filename)
            self._main = self._main or _main()  # at the end Python has forgotten it
            if file not in self._callable and self._looks[file] < MOST_LOOKS:
                self._looks[file] += 1
                if _is_in_a_function_that_launches(code.co_filename):
                    self._callable.add(file)
            begun = perf_counter()
            result = original(*args, **kwargs)
            took_ms = (perf_counter() - begun) * 1e3
            name = getattr(result, "name", None)
            symbol = name if isinstance(name, str) else function.__name__
            given = launcher.given_of(*args, **kwargs).arguments
            tensors = tuple((t.dtype, t.shape, t.size_bytes) for t in tensors_of(given))
            self._count(LaunchKind(file, kernel_name(function), symbol, tensors), took_ms)
            return result

        return launch

    def _count(self, kind: LaunchKind, took_ms: float) -> None:
        with self._lock:
            if kind not in self._counts and len(self._counts) >= MOST_KINDS:
                kind = LaunchKind(kind.file, kind.kernel, kind.symbol, ())
            count = self._counts.setdefault(kind, LaunchCount())
            count.count += 1
            count.wall_ms += took_ms
            news = self.gpu.read_now_and_then()
            if news or monotonic() - self._told > BETWEEN_READINGS_S:
                self._tell()

    def _end(self) -> None:
        with contextlib.suppress(RuntimeError):  # a GPU that cannot be asked any more
            self.gpu.read()
        with self._lock:
            self._tell()

    def _tell(self) -> None:
        """Write what has been seen up to now; the last line of a process holds all of it."""
        self._told = monotonic()
        if not self._counts and not self.gpu.by_name:
            return
        message = {
            "launches": [vars(kind) | vars(count) for kind, count in self._counts.items()],
            "gpu": {name: vars(time) for name, time in self.gpu.by_name.items()},
            "on_gpu": is_initialised(),
            "gave_way": self.gpu.gave_way,
            "main": self._main,
            "callable": sorted(self._callable),
        }
        # A process may outlive the command, and with it the folder.
        with contextlib.suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(message)}\n")


def _main() -> str:
    """The file that Python runs; empty where it is none."""
    return os.path.realpath(getattr(sys.modules.get("__main__"), "__file__", "") or "")


def _is_in_a_function_that_launches(file: str) -> bool:
    """Whether a function of the file is at work, or one of another file of its project that holds
    its kernels: `capture` can call that, and have it launch."""
    modules = [m for m in list(sys.modules.values()) if getattr(m, "__file__", None) == file]
    frame = sys._getframe(1)
    while frame:
        path = frame.f_code.co_filename
        if frame.f_code.co_name != "<module>":
            if path == file:
                return True
            module = sys.modules.get(frame.f_globals.get("__name__", ""))
            if modules and module is not None and held_kernels(module, path, modules):
                return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
