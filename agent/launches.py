"""What the perf tests launched a kernel with: facts that a file's text may leave open."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from operator import mul


@dataclass(frozen=True)
class ObservedTensor:
    """A tensor that a launch was given."""

    dtype: str
    """PyTorch's name: bfloat16."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements."""
    aligned: bool
    """Whether its address is a multiple of 16 bytes."""

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"

    @property
    def size_bytes(self) -> int:
        """Of the elements that have an address of their own."""
        there = [n for n, step in zip(self.shape, self.strides, strict=True) if step or n < 2]
        bits = re.search(r"\d+", self.dtype)
        return prod(there) * (int(bits[0]) if bits else 8) // 8  # bool has no number

    @property
    def layout(self) -> str:
        """'contiguous, 16-byte aligned'."""
        steps = accumulate(reversed(self.shape[1:]), mul, initial=1)
        contiguous = self.strides == tuple(steps)[::-1] or not self.shape
        told = "contiguous" if contiguous else f"strides {list(self.strides)}"
        return f"{told}, {'' if self.aligned else 'not '}16-byte aligned"


@dataclass(frozen=True)
class TunedConfig:
    """One config that a kernel's tuner timed."""

    constants: dict[str, int]
    """What it gives the kernel; a bool counts as 0 or 1."""
    options: dict[str, int]
    """`num_warps` and the like."""
    latency_ms: float | None
    """By the tuner's own clock; None where the config does not run."""


@dataclass(frozen=True)
class ObservedTuning:
    """What a tuner did, before a launch, for one value of its key."""

    key: dict[str, str]
    """Parameter -> value, as text."""
    tried: int
    """Configs that were compiled and timed."""
    took_s: float
    """Wall time of all of them: what the first call of a new process takes longer."""
    configs: tuple[TunedConfig, ...] = ()
    """Empty where one of them gives the kernel what is no integer."""

    def near_best(self, slower: float) -> tuple[TunedConfig, ...]:
        """The fastest config, and those that are slower by no more than this fraction."""
        timed = [(c, c.latency_ms) for c in self.configs if c.latency_ms is not None]
        best_ms = min((latency_ms for _, latency_ms in timed), default=0.0)
        return tuple(c for c, latency_ms in timed if latency_ms <= best_ms * (1 + slower))


@dataclass(frozen=True)
class ObservedLaunch:
    """One launch of a kernel of the file, by a perf test."""

    kernel: str
    test: str
    """The pytest node id of the first test that launched it so."""
    grid: tuple[int, ...]
    """Empty where it could not be told."""
    integers: dict[str, int]
    """Parameter -> value, of sizes, strides and block sizes alike; a bool counts as 0 or 1."""
    tensors: dict[str, ObservedTensor]
    options: dict[str, int]
    """`num_warps` and the like, where the launch or a config gave them."""
    tuning: ObservedTuning | None = None
    """How the config was chosen, where a tuner chose it."""
    timings: tuple[tuple[str, str], ...] = ()
    """Test, and what it calls the timing, of all that launched it so; empty where that is not
    known: only a worker that takes the timings itself sees when they begin."""

    def given(self, but: Collection[str] = ()) -> tuple[str, ...]:
        """What it was given, in a few lines: tensors that are alike together, then numbers.

        Args:
            but: names of numbers that are told elsewhere.
        """
        alike: dict[str, list[str]] = {}
        for name, tensor in self.tensors.items():
            alike.setdefault(f"{tensor}, {tensor.layout}", []).append(name)
        told = {n: value for n, value in (self.integers | self.options).items() if n not in but}
        numbers = [f"{name}={value}" for name, value in told.items()]
        lines = [f"{', '.join(names)}: {tensor}" for tensor, names in alike.items()]
        return (*lines, *([", ".join(numbers)] if numbers else []))

    def __str__(self) -> str:
        given = [f"{name}={tensor}" for name, tensor in self.tensors.items()]
        given += [
            f"{name}={value}" for name, value in (*self.integers.items(), *self.options.items())
        ]
        return f"{self.kernel}[{', '.join(map(str, self.grid)) or '?'}]({', '.join(given)})"


def values_of(launches: Iterable[ObservedLaunch], kernel: str, parameter: str) -> tuple[int, ...]:
    """What a parameter of a kernel was given, each value once; empty where nobody saw a launch."""
    found = [
        launch.integers[parameter]
        for launch in launches
        if launch.kernel == kernel and parameter in launch.integers
    ]
    return tuple(dict.fromkeys(found))


def by_cost(launches: Iterable[ObservedLaunch], latency_ms: Mapping[str, float]) -> tuple[str, ...]:
    """The kernels that were launched, that of the longest test first.

    Args:
        launches: what was seen.
        latency_ms: node id -> the longest timing of the test; 0 where there is none.
    """
    longest: dict[str, float] = {}
    for launch in launches:
        known = longest.get(launch.kernel, 0.0)
        longest[launch.kernel] = max(known, latency_ms.get(launch.test, 0.0))
    return tuple(sorted(longest, key=lambda kernel: -longest[kernel]))


def of_one_timing(
    launches: Iterable[ObservedLaunch], timings: Mapping[str, int]
) -> tuple[ObservedLaunch, ...]:
    """Those of which it is known what times them, as of tests that time one thing alone.

    Args:
        launches: what was seen.
        timings: node id -> how many timings the test takes, where that is known.
    """
    return tuple(each for each in launches if each.timings or timings.get(each.test, 1) <= 1)


def power_of_two(size: int) -> int:
    """The smallest one that a size is not above, as `triton.next_power_of_2` has it."""
    return 1 << (size - 1).bit_length() if size > 0 else 0


def tunings_of(launches: Iterable[ObservedLaunch], kernel: str) -> tuple[ObservedTuning, ...]:
    """What a kernel's tuner did, once for each value of its key."""
    found = {
        repr(launch.tuning.key | _dtypes(launch)): launch.tuning
        for launch in launches
        if launch.kernel == kernel and launch.tuning is not None
    }
    return tuple(found.values())


def _dtypes(launch: ObservedLaunch) -> dict[str, str]:
    """They are part of every key of Triton's tuner."""
    return {name: tensor.dtype for name, tensor in launch.tensors.items()}


def tuning_costs(launches: Sequence[ObservedLaunch]) -> tuple[str, ...]:
    """What a cold tuning of each kernel takes, a line each; none where none was seen."""
    kernels = dict.fromkeys(launch.kernel for launch in launches)
    return tuple(
        _cost(kernel, tunings) for kernel in kernels if (tunings := tunings_of(launches, kernel))
    )


def _cost(kernel: str, tunings: Sequence[ObservedTuning]) -> str:
    took_s = sum(tuning.took_s for tuning in tunings)
    tried = sum(tuning.tried for tuning in tunings)
    most = max(tuning.tried for tuning in tunings)
    keys = "1 key" if len(tunings) == 1 else f"{len(tunings)} keys"
    names = f" ({', '.join(tunings[0].key)})" if tunings[0].key else ""
    return (
        f"{kernel} tries {most} configs for each new key{names}: "
        f"{most} x {took_s / tried:.2f} s to compile and time one = "
        f"{most * took_s / tried:.1f} s; seen for {keys}"
    )


def configs_shown(
    launches: Iterable[ObservedLaunch], chosen: Mapping[str, Collection[str]] | None = None
) -> dict[str, int]:
    """Kernel -> how many of its configs it was launched with.

    A tuner launches a kernel several times on the same tensors; a call without one does so once.

    Args:
        launches: what tests were seen to launch.
        chosen: kernel -> the constants that its tuner sets, where that is known: two calls on the
            same tensors differ in others.
    """
    found: dict[tuple[str, str, str], set[str]] = {}
    for each in launches:
        key = (each.kernel, each.test, repr(each.tensors))
        own = (chosen or {}).get(each.kernel, each.integers)
        integers = {name: value for name, value in each.integers.items() if name in own}
        found.setdefault(key, set()).add(repr((integers, each.options)))
    counts: dict[str, int] = {}
    for (kernel, *_), configs in found.items():
        counts[kernel] = max(counts.get(kernel, 0), len(configs))
    return counts
