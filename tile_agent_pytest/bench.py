"""Times a callable on the GPU, or on the CPU where there is none. Used through `tile_bench`.

Under plain pytest a call takes all its samples at once. Under tile-agent the call stops and asks:
the parent then orders one block of samples at a time, in turn with the other arm's worker, so that
both are measured in the same seconds on inputs that are made only once.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Protocol

from tile_agent_pytest.capturable import can_be_captured
from tile_agent_pytest.examining.tensors import reachable
from tile_agent_pytest.graphs import l2_bytes, open_graph
from tile_agent_pytest.input_sets import Turns

WARMUP_MS = 25.0
REP_MS = 100.0
MIN_SAMPLES = 5
MAX_SAMPLES = 1000
SHORT_MS = 0.05
"""A kernel below this is timed as a graph: between two events its own time drowns in theirs."""
COVERED_MS = 0.03
"""Of the host's time; overwriting the L2 cache takes longer."""
MOST_WAIT_MS = 2.0
"""Behind a flush: a call that keeps the host for longer waits for the GPU by itself, as a rule."""
FIRST_WAIT_MS = 1.0
"""Of the first call of an order."""


@dataclass(frozen=True)
class Timing:
    """The samples of one config, in ms, and how they were taken."""

    config: str
    samples_ms: tuple[float, ...]
    method: str
    weight: float = 1.0
    """How much it counts beside the others."""

    @property
    def median_ms(self) -> float:
        """The middle sample."""
        return statistics.median(self.samples_ms)


class Sampler(Protocol):
    """A way to time a callable."""

    method: str
    """What the other arm is told, to be timed alike."""
    label: str
    """What is told to a person."""
    calls: bool
    """Whether a sample calls it; else it replays what was captured, at the same addresses."""
    turns: Turns | None
    """What the captured calls take turns with, where they do."""
    launches: int
    """How often it is called for a sample, which is what one of these takes."""

    def sample(self, count: int) -> list[float]:
        """So many samples, in ms."""

    keeps_host: bool
    """Whether a call keeps the host for so long that the GPU may have to wait for it."""

    def burst(self, count: int) -> None:
        """Do so many samples' work and wait for its end; whoever asked times it."""


Gate = Callable[[str, Callable[[], Any]], "Timing"]
"""Takes over a measurement: config and callable in, what was measured out."""


InTiming = Callable[[str], contextlib.AbstractContextManager[Any]]
"""What a timing of that name takes place in."""


class TileBench:
    """The `tile_bench` fixture: call it with what is to be timed.

    Example:
        def test_perf_softmax(tile_bench):
            x = torch.randn(4096, 4096, device="cuda")
            tile_bench(lambda: softmax(x))
    """

    def __init__(
        self,
        emit: Callable[[Timing], None],
        gate: Gate | None = None,
        in_timing: InTiming = contextlib.nullcontext,
    ) -> None:
        self._emit = emit
        self._gate = gate
        self._in_timing = in_timing

    def __call__(
        self,
        fn: Callable[[], Any],
        *,
        config: str = "forward",
        warmup_ms: float = WARMUP_MS,
        rep_ms: float = REP_MS,
        weight: float = 1.0,
    ) -> float:
        """Time `fn` and record it.

        Args:
            fn: launches the kernel; called many times, so it must not depend on how often.
            config: names the timing when one test takes several; the test's own parameters are
                part of the name anyway.
            warmup_ms: how long to run it before anything counts; compilation comes before that.
            rep_ms: about how much time the samples may take together.
            weight: how much it counts beside the other timings of a run, above 0: the part of the
                time that such calls take in a program, for instance.

        Returns:
            The median latency in ms.
        """
        with self._in_timing(config):
            if self._gate is not None:
                timing = self._gate(config, fn)
            else:
                samples, label = sampled(*open_sampler(fn), warmup_ms, rep_ms)
                timing = Timing(config, tuple(samples), label)
        self._emit(replace(timing, weight=weight))
        return timing.median_ms


def has_gpu() -> bool:
    """Whether there is one to time on."""
    import torch

    return bool(torch.cuda.is_available())


def open_gpu() -> None:
    """Have CUDA's context, which takes half a second and more, before anybody waits for it."""
    torch = sys.modules.get("torch")  # what has not imported it by now hardly times with it
    if torch is not None and torch.cuda.is_available():
        with contextlib.suppress(RuntimeError):  # the test meets it again, and says what it is
            torch.empty(1, device="cuda")


def open_sampler(
    fn: Callable[[], Any], method: str | None = None, tensors: Iterable[Any] | None = None
) -> tuple[Sampler, float]:
    """Choose how to time `fn` and estimate its latency; compilation is over then.

    Args:
        fn: what to time.
        method: that of a sampler, to have both arms of a comparison timed alike; chosen by the
            estimate when not given.
        tensors: those that may be copied, so that launches of a short kernel take turns with the
            copies; all that it has at hand when not given.

    Returns:
        The sampler and its estimate in ms.

    Raises:
        RuntimeError: it cannot be timed by that method.
    """
    if not has_gpu():
        fn()
        sampler: Sampler = OnCpu(fn)
        return sampler, _estimate(sampler, 1)
    import torch

    fn()
    torch.cuda.synchronize()
    events = OnGpu(fn)
    estimate_ms = _estimate(events, MIN_SAMPLES)
    if method is None and not (estimate_ms < SHORT_MS and can_be_captured(fn)):
        method = events.method
    if method == events.method:
        return events, estimate_ms
    if tensors is None:
        tensors = reachable(fn, "").values()
    graph = open_graph(fn, method, tensors)
    return graph, _estimate(graph, MIN_SAMPLES)


def sampled(
    sampler: Sampler, estimate_ms: float, warmup_ms: float, rep_ms: float
) -> tuple[list[float], str]:
    """Warm up, and take as many samples as fit into a time.

    Args:
        sampler: takes them.
        estimate_ms: what one of them may be.
        warmup_ms: how long nothing counts.
        rep_ms: about how much time the samples take together.

    Returns:
        The samples, in ms, and how they were taken.
    """
    each_ms = sampler.launches * estimate_ms
    sampler.sample(count_for(warmup_ms, each_ms, at_least=1))
    return sampler.sample(count_for(rep_ms, each_ms, at_least=MIN_SAMPLES)), sampler.label


def count_for(budget_ms: float, each_ms: float, *, at_least: int) -> int:
    """How many samples fit into a budget."""
    return max(at_least, min(MAX_SAMPLES, int(budget_ms / each_ms)))


def _estimate(sampler: Sampler, count: int) -> float:
    return max(statistics.median(sampler.sample(count)), 1e-5)


class OnGpu:
    """Each launch between two CUDA events, after the L2 cache has been overwritten.

    The flush reads and writes: a write-only fill may bypass the cache. By the time the first event
    is reached the host must have queued all that is launched, or its own time is in the sample. The
    flush gives it time enough for a launch or two; where a call keeps the host for longer, as one
    through autograd does, the GPU waits behind the flush. The first call of each order keeps it
    longer than any, more so where its inputs are new: the GPU waits for that one in any case.
    """

    method = "OnGpu"
    label = "CUDA events, cold L2"
    calls = True
    turns: Turns | None = None
    launches = 1

    def __init__(self, fn: Callable[[], Any]) -> None:
        import torch

        self._torch = torch
        self._fn = fn
        size = max(2 * l2_bytes(), 1 << 26)
        self._flush = torch.zeros(size // 4, dtype=torch.int32, device="cuda")
        host_ms = self._host_ms()
        self.keeps_host = host_ms > COVERED_MS
        wait_ms = min(2 * host_ms, MOST_WAIT_MS) if self.keeps_host else 0.0
        cycles_per_ms = self._cycles_per_ms()
        self._wait_cycles = int(wait_ms * cycles_per_ms)
        self._first_wait_cycles = int(max(wait_ms, FIRST_WAIT_MS) * cycles_per_ms)

    def _host_ms(self) -> float:
        """How long a call keeps the host: the shortest of a few."""
        spent = []
        for _ in range(MIN_SAMPLES):
            self._torch.cuda.synchronize()
            begin = perf_counter()
            self._fn()
            spent.append((perf_counter() - begin) * 1e3)
        self._torch.cuda.synchronize()
        return min(spent)

    def _cycles_per_ms(self) -> float:
        event, cycles = self._torch.cuda.Event, 1_000_000
        start, end = event(enable_timing=True), event(enable_timing=True)
        self._torch.cuda._sleep(cycles)  # it wakes up
        start.record()
        self._torch.cuda._sleep(cycles)
        end.record()
        self._torch.cuda.synchronize()
        return cycles / float(start.elapsed_time(end))

    def sample(self, count: int) -> list[float]:
        """One sample a launch."""
        event = self._torch.cuda.Event
        pairs = [(event(enable_timing=True), event(enable_timing=True)) for _ in range(count)]
        wait_cycles = self._first_wait_cycles
        for start, end in pairs:
            self._flush.add_(1)
            if wait_cycles:
                self._torch.cuda._sleep(wait_cycles)
            wait_cycles = self._wait_cycles
            start.record()
            self._fn()
            end.record()
        self._torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in pairs]

    def burst(self, count: int) -> None:
        """So many launches, one behind the other."""
        for _ in range(count):
            self._fn()
        self._torch.cuda.synchronize()


class OnCpu:
    """Wall time of each call."""

    method = "OnCpu"
    label = "CPU wall time"
    calls = True
    turns: Turns | None = None
    launches = 1
    keeps_host = False

    def __init__(self, fn: Callable[[], Any]) -> None:
        self._fn = fn

    def sample(self, count: int) -> list[float]:
        """One sample a call."""
        samples = []
        for _ in range(count):
            begin = perf_counter()
            self._fn()
            samples.append((perf_counter() - begin) * 1e3)
        return samples

    def burst(self, count: int) -> None:
        """So many calls."""
        for _ in range(count):
            self._fn()
