"""How long the blocks of a comparison are, and how many of them there are."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

MANY, MANY_QUADS = 5, 2
"""From so many configs of a pair on, so many ABBA orders of each."""
SEVERAL, LEAST_OF_SEVERAL = 3, 15
"""From so many on, so many samples of a block at least."""
BURST_MS = 10.0
"""Of launches behind each other, which the parent times by its own clock."""
LEAST_REPLAYS = 8
"""Samples of a block that are each the mean of a graph's launches."""
LEAST_ON_CPU = 10
"""Samples of a block without a GPU; fewer of slow kernels."""


@dataclass(frozen=True)
class BlockTiming:
    """How long the blocks are."""

    block_ms: float = 20.0
    """Short, and many of them: when a power cap moves the clock, blocks that alternate faster than
    it moves see the same clock. On an H200, a matrix product scattered by 1.3 to 1.4 % a pair with
    eight blocks of 150 ms or four of 300, and by 0.6 % with twenty-four of 20."""
    settle_ms: float = 100.0
    """Uncounted work of each arm before its first block, for a GPU's clock to settle."""
    quads: int = 3
    """ABBA orders a pair and config; of slow launches, one. Pairs differ, their blocks hardly do:
    over pairs of the same code on an H200 the log ratio scattered by 1.64, 1.66 and 1.64 % after 4,
    12 and 24 blocks (20 pairs of a product), by 0.19, 0.18 and 0.18 % (20 of a kernel of 2 us)."""
    least_samples: int = 25
    least_slow_samples: int = 3
    """For kernels of more than `slow_ms`."""
    slow_ms: float = 5.0

    def settle(self, take: Callable[[int], object], estimate_ms: float) -> float:
        """Have uncounted work done, for a clock to settle.

        Args:
            take: takes so many samples.
            estimate_ms: of a launch.

        Returns:
            The wall time of a sample, in ms. It is more than that of its launch: the host queues
            it, the L2 cache is overwritten, and a sample of a graph is many launches.
        """
        taken, begin, spent_ms = 0, time.perf_counter(), 0.0
        count = self._least(estimate_ms)
        while count > 0:
            take(count)
            taken += count
            spent_ms = (time.perf_counter() - begin) * 1e3
            count = int((self.settle_ms - spent_ms) * taken / max(spent_ms, 1e-3))
        return max(spent_ms, 1e-3) / taken

    def count(self, estimate_ms: float, sample_ms: float, *, replays: bool = False) -> int:
        """How many samples a block takes, where a launch and a sample take so long.

        Args:
            estimate_ms: of a launch.
            sample_ms: wall time of a sample.
            replays: whether a sample is a replay of a graph, which is many launches.
        """
        least = min(LEAST_REPLAYS, self.least_samples) if replays else self._least(estimate_ms)
        return max(least, min(1000, int(self.block_ms / sample_ms)))

    def _least(self, estimate_ms: float) -> int:
        return self.least_slow_samples if estimate_ms > self.slow_ms else self.least_samples

    def of_several(self, configs: int, before: int) -> BlockTiming:
        """The same for one of several configs that a pair measures, after so many others.

        Of many there are fewer and shorter blocks each. After the first config the GPU is awake.
        """
        awake = replace(self, settle_ms=min(self.settle_ms, self.block_ms)) if before else self
        if configs < SEVERAL:
            return awake
        quads = min(self.quads, MANY_QUADS) if configs >= MANY else self.quads
        least = min(self.least_samples, LEAST_OF_SEVERAL)
        return replace(awake, quads=quads, least_samples=least)

    def burst(self, estimate_ms: float, count: int) -> int:
        """How many launches a burst has, where a block has so many; that of a slow one has one."""
        if estimate_ms > self.slow_ms:
            return 1
        return min(max(50, count // 4), math.ceil(BURST_MS / max(estimate_ms, 1e-6)))

    def on_cpu(self) -> BlockTiming:
        """The same without a GPU: no clock has to settle, and what else the machine does changes
        faster than many samples of an interpreted kernel are taken.
        """
        least = min(self.least_samples, LEAST_ON_CPU)
        return replace(self, settle_ms=self.block_ms, quads=1, least_samples=least)
