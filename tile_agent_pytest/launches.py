"""What a test launched: enough of it to compile the kernel again, for any GPU."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tile_agent_pytest.examining.arrays import as_tensor, library_of

Message = dict[str, Any]


@dataclass(frozen=True)
class RecordedTensor:
    """A tensor that a launch is given."""

    name: str
    """The parameter; with a number behind it where the parameter holds several."""
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    """Of the elements that have an address of their own: an expanded axis counts once."""
    region: Hashable = field(default=None, compare=False)
    """Equal for the same elements of the same allocation."""

    def describe(self) -> Message:
        """What the parent is told of it."""
        return {
            "name": self.name,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "size_bytes": self.size_bytes,
        }


def tensors_of(arguments: Mapping[str, Any]) -> tuple[RecordedTensor, ...]:
    """The tensors among the arguments of a launch, in tuples, lists and descriptors too."""
    return tuple(t for name, value in arguments.items() for t in _tensors(name, value))


def _tensors(name: str, value: Any) -> Iterator[RecordedTensor]:
    if isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from _tensors(f"{name}[{index}]", item)
        return
    if library_of(value):
        value = as_tensor(value)
    tensor = getattr(value, "base", value)  # Triton's host descriptors hold theirs so
    if not (hasattr(tensor, "untyped_storage") and hasattr(tensor, "storage_offset")):
        return  # a stand-in of a library's own
    shape, strides = tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride()))
    own = math.prod(n for n, stride in zip(shape, strides, strict=True) if stride)
    yield RecordedTensor(
        name,
        str(tensor.dtype).removeprefix("torch."),
        shape,
        own * int(tensor.element_size()),
        (tensor.untyped_storage()._cdata, int(tensor.storage_offset()), shape, strides),
    )


@dataclass(frozen=True)
class RecordedLaunch:
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
    tensors: tuple[RecordedTensor, ...] = ()
    test: str = ""
    """The pytest node id of the first test that launched it; of the first that timed it, if any."""
    timed: bool = False
    """Whether that is a perf test."""
    observed: Message | None = field(default=None, compare=False)
    """What it was given, by `observed_launches.as_recorded`; None where nobody saw it."""

    def describe(self) -> Message:
        """What the parent is told of it."""
        return {
            "kernel": self.kernel,
            "observed": self.observed,
            "arguments": dict(self.arguments),
            "options": dict(self.options),
            "grid": list(self.grid),
            "test": self.test,
            "timed": self.timed,
            "tensors": [tensor.describe() for tensor in self.tensors],
        }


def chosen(launches: Sequence[RecordedLaunch], most: int) -> list[RecordedLaunch]:
    """So many launches, in their order: of each kernel the largest before a second of any.

    A kernel that tunes itself is launched with more configs than are compiled of a whole file, and
    tests that go from small sizes to large ones begin with what nobody tunes for.
    """
    seen: Counter[str] = Counter()
    by_size = sorted(launches, key=lambda launch: -sum(t.size_bytes for t in launch.tensors))
    ranks: dict[int, int] = {}
    for launch in by_size:
        ranks[id(launch)] = seen[launch.kernel]
        seen[launch.kernel] += 1
    first = set(map(id, sorted(launches, key=lambda launch: ranks[id(launch)])[:most]))
    return [launch for launch in launches if id(launch) in first]


@dataclass
class RecordedWork:
    """What one timing covers: its launches, and the tensors that they are given."""

    test: str
    config: str
    timed: bool
    """Whether a `tile_bench` call was seen; else it is all that the test launches."""
    launches: dict[tuple[str, tuple[int, ...]], None] = field(default_factory=dict)
    """Kernel and grid, each once: a kernel that tunes itself is launched with many."""
    tensors: dict[Hashable, RecordedTensor] = field(default_factory=dict)
    """Each once, however many launches read or write it."""

    def add(self, launch: RecordedLaunch) -> None:
        """Count a launch in."""
        self.launches[launch.kernel, launch.grid] = None
        for tensor in launch.tensors:
            # A test that times by other means launches a kernel on copies of the same inputs.
            key = tensor.region if self.timed else (launch.kernel, tensor)
            self.tensors.setdefault(key, tensor)

    def describe(self) -> Message:
        """What the parent is told of it."""
        return {
            "test": self.test,
            "config": self.config,
            "launches": [[kernel, list(grid)] for kernel, grid in self.launches],
            "tensors": [tensor.describe() for tensor in self.tensors.values()],
        }


class LaunchRecorder:
    """Collects the distinct launches of the kernels of one file."""

    def __init__(self, kernel_file: str) -> None:
        self._file = os.path.realpath(kernel_file)
        self._launches: dict[Hashable, RecordedLaunch] = {}
        self._places: dict[Hashable, int] = {}
        self._sequence: list[tuple[int, tuple[int, ...], tuple[str, ...], str]] = []
        self._timings: list[RecordedWork] = []
        self._others: dict[str, RecordedWork] = {}
        self._timing: RecordedWork | None = None
        self.test = ""
        """The test that is running."""
        self.timed = False
        """Whether it is a perf test."""
        self.untried = 0
        """Configs of tuners that were not launched, as others did better for a run's first text."""

    @property
    def launches(self) -> tuple[RecordedLaunch, ...]:
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

    @property
    def work(self) -> tuple[RecordedWork, ...]:
        """Of each timing, in order; of each perf test that was not seen to time, one."""
        seen = {work.test for work in self._timings}
        others = [work for test, work in self._others.items() if test not in seen]
        return tuple(work for work in (*self._timings, *others) if work.launches)

    @contextlib.contextmanager
    def timing(self, config: str) -> Iterator[None]:
        """What is launched in the block is what a timing of that name covers."""
        self._timing = RecordedWork(self.test, config, timed=True)
        self._timings.append(self._timing)
        try:
            yield
        finally:
            self._timing = None

    def covers(self, function: Any) -> bool:
        """Whether a Python function stands in the file."""
        code = getattr(function, "__code__", None)
        return code is not None and os.path.realpath(code.co_filename) == self._file

    def add(self, launch: RecordedLaunch) -> None:
        """Keep a launch unless one that compiles to the same is there already."""
        place = self._places.setdefault(launch.key, len(self._places))
        self._sequence.append((place, launch.grid, launch.values, self.test))
        if self.timed:
            other = self._others.setdefault(
                self.test, RecordedWork(self.test, "forward", timed=False)
            )
            (self._timing or other).add(launch)
        known = self._launches.get(launch.key)
        if known is None or (self.timed and not known.timed):
            self._launches[launch.key] = replace(launch, test=self.test, timed=self.timed)
