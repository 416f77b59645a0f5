"""What a test launched: enough of it to compile the kernel again, for any GPU."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

Message = dict[str, Any]


@dataclass(frozen=True)
class Launch:
    """One kernel with what the compiler specializes it to. Equal keys compile to the same code."""

    key: Hashable
    kernel: str
    arguments: Mapping[str, str]
    """What the compiler is told of each parameter, as text."""
    options: Mapping[str, Any]
    """Compiler options that the launch or the decorator gives."""
    compile: Callable[[str, Path], Message] = field(repr=False, compare=False)
    """Compiles it for a target such as 'sm_90' into files of a folder, and says which."""
    grid: tuple[int, ...] = ()
    """Empty where it is not known."""
    values: tuple[str, ...] = ()
    """The arguments that are no arrays: the code is the same, its work need not be."""
    test: str = ""
    """The pytest node id of the first test that launched it; of the first that timed it, if any."""
    timed: bool = False
    """Whether that is a perf test."""

    def describe(self) -> Message:
        """What the parent is told of it."""
        return {
            "kernel": self.kernel,
            "arguments": dict(self.arguments),
            "options": dict(self.options),
            "grid": list(self.grid),
            "test": self.test,
            "timed": self.timed,
        }


class Recorder:
    """Collects the distinct launches of the kernels of one file."""

    def __init__(self, kernel_file: str) -> None:
        self._file = os.path.realpath(kernel_file)
        self._launches: dict[Hashable, Launch] = {}
        self._places: dict[Hashable, int] = {}
        self._sequence: list[tuple[int, tuple[int, ...], tuple[str, ...], str]] = []
        self.test = ""
        """The test that is running."""
        self.timed = False
        """Whether it is a perf test."""

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Each once: those of perf tests, then the others, in the order of the first time."""
        return tuple(sorted(self._launches.values(), key=lambda launch: not launch.timed))

    @property
    def sequence(self) -> str:
        """A digest of all launches in order, with grids and values; empty where a grid is unknown.

        Launches of the same code differ in it: a sweep over the blocks of a persistent kernel
        changes nothing but the grid, and perhaps only that of a later launch.
        """
        if any(not grid for _, grid, _, _ in self._sequence):
            return ""
        return hashlib.sha256(repr(self._sequence).encode()).hexdigest()

    def covers(self, function: Any) -> bool:
        """Whether a Python function stands in the file."""
        code = getattr(function, "__code__", None)
        return code is not None and os.path.realpath(code.co_filename) == self._file

    def add(self, launch: Launch) -> None:
        """Keep a launch unless one that compiles to the same is there already."""
        place = self._places.setdefault(launch.key, len(self._places))
        self._sequence.append((place, launch.grid, launch.values, self.test))
        known = self._launches.get(launch.key)
        if known is None or (self.timed and not known.timed):
            self._launches[launch.key] = replace(launch, test=self.test, timed=self.timed)
