"""How long the blocks of a comparison are, and how many of them there are."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    quads: int = 6
    """ABBA orders a pair and config; of slow launches, one."""
    least_samples: int = 25
    least_slow_samples: int = 3
    """For kernels of more than `slow_ms`."""
    slow_ms: float = 5.0
    flush_ms: float = 0.1
    """About what overwriting the L2 cache adds to a sample."""

    def count(self, budget_ms: float, estimate_ms: float) -> int:
        """How many samples a block of `budget_ms` takes."""
        least = self.least_slow_samples if estimate_ms > self.slow_ms else self.least_samples
        return max(least, min(1000, int(budget_ms / (estimate_ms + self.flush_ms))))

    def on_cpu(self) -> BlockTiming:
        """The same without a GPU: no clock has to settle, and what else the machine does changes
        faster than many samples of an interpreted kernel are taken.
        """
        least = min(self.least_samples, LEAST_ON_CPU)
        return replace(self, settle_ms=self.block_ms, quads=1, least_samples=least)
