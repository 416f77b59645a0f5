"""Times a callable on the GPU, or on the CPU where there is none. Used through `tile_bench`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

WARMUP_MS = 25.0
REP_MS = 100.0
MIN_SAMPLES = 5
MAX_SAMPLES = 1000


@dataclass(frozen=True)
class Timing:
    """The samples of one config, in ms, and how they were taken."""

    config: str
    samples_ms: tuple[float, ...]
    method: str

    @property
    def median_ms(self) -> float:
        """The middle sample."""
        return statistics.median(self.samples_ms)


class TileBench:
    """The `tile_bench` fixture: call it with what is to be timed.

    Example:
        def test_perf_softmax(tile_bench):
            x = torch.randn(4096, 4096, device="cuda")
            tile_bench(lambda: softmax(x))
    """

    def __init__(self, emit: Callable[[Timing], None]) -> None:
        self._emit = emit

    def __call__(
        self,
        fn: Callable[[], Any],
        *,
        config: str = "forward",
        warmup_ms: float = WARMUP_MS,
        rep_ms: float = REP_MS,
    ) -> float:
        """Time `fn` and record it.

        Args:
            fn: launches the kernel; called many times, so it must not depend on how often.
            config: names the timing when one test takes several; the test's own parameters are
                part of the name anyway.
            warmup_ms: how long to run it before anything counts; compilation comes before that.
            rep_ms: about how much time the samples may take together.

        Returns:
            The median latency in ms.
        """
        import torch

        if torch.cuda.is_available():
            samples, method = _on_gpu(fn, warmup_ms, rep_ms), "CUDA events, cold L2"
        else:
            samples, method = _on_cpu(fn, warmup_ms, rep_ms), "CPU wall time"
        timing = Timing(config, tuple(samples), method)
        self._emit(timing)
        return timing.median_ms


def _on_gpu(fn: Callable[[], Any], warmup_ms: float, rep_ms: float) -> list[float]:
    """Each launch between two CUDA events, after the L2 cache has been overwritten.

    The flush reads and writes: a write-only fill may bypass the cache. It also takes long enough
    for the host to have queued the launch by the time the first event is reached, which keeps the
    host's launch time out of the sample.
    """
    import torch

    fn()
    torch.cuda.synchronize()
    device = torch.cuda.current_device()
    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    flush = torch.zeros(max(2 * l2_bytes, 1 << 26) // 4, dtype=torch.int32, device="cuda")

    def sample(count: int) -> list[float]:
        starts = [torch.cuda.Event(enable_timing=True) for _ in range(count)]
        ends = [torch.cuda.Event(enable_timing=True) for _ in range(count)]
        for start, end in zip(starts, ends, strict=True):
            flush.add_(1)
            start.record()
            fn()
            end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in zip(starts, ends, strict=True)]

    estimate_ms = max(statistics.median(sample(MIN_SAMPLES)), 1e-3)
    sample(_count(warmup_ms, estimate_ms, at_least=1))
    return sample(_count(rep_ms, estimate_ms, at_least=MIN_SAMPLES))


def _on_cpu(fn: Callable[[], Any], warmup_ms: float, rep_ms: float) -> list[float]:
    def sample() -> float:
        begin = time.perf_counter()
        fn()
        return (time.perf_counter() - begin) * 1e3

    fn()
    estimate_ms = max(sample(), 1e-3)
    for _ in range(_count(warmup_ms, estimate_ms, at_least=0)):
        sample()
    return [sample() for _ in range(_count(rep_ms, estimate_ms, at_least=MIN_SAMPLES))]


def _count(budget_ms: float, each_ms: float, *, at_least: int) -> int:
    return max(at_least, min(MAX_SAMPLES, int(budget_ms / each_ms)))
