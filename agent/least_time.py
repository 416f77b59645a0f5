"""The least time that a GPU needs for what is timed, and whether a run has anything left to gain.

Only values live here, so that a journal can hold them without knowing how they are found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TIMES_THE_CACHE = 4
"""Tensors of fewer times the L2 cache may come from it, and beat the memory behind it."""
BELOW_THE_LEAST = 0.02
"""How far under its least time a latency may be; one further under it does less than counted."""


@dataclass(frozen=True)
class LeastTime:
    """What one config needs at least, of whatever code."""

    config: str
    """As records name it."""
    memory_ms: float
    """For its bytes: each tensor once, at the bandwidth that can be had for reads and writes."""
    compute_ms: float | None
    """For its matrix product; 0 where it has none, None where its operations are not counted."""
    tensor_bytes: int
    flop: float = 0.0
    """Floating-point operations of its matrix product; 0 where not known."""
    certain: bool = True
    """Whether the bytes must all be moved: no tensor of integers can say which elements are."""

    @property
    def least_ms(self) -> float:
        """Of the higher roof."""
        return max(self.memory_ms, self.compute_ms or 0.0)

    @property
    def by_memory(self) -> bool:
        """Whether the bandwidth is what bounds it, as far as is known."""
        return self.memory_ms >= (self.compute_ms or 0.0)

    def share(self, latency_ms: float) -> float:
        """How much of what can be had a latency attains, 1 at the roof."""
        return self.least_ms / latency_ms

    def holds(self, latency_ms: float) -> bool:
        """Whether a latency does not belie it, as that of code that reads a part of a tensor."""
        return self.share(latency_ms) <= 1 / (1 - BELOW_THE_LEAST)


@dataclass(frozen=True)
class LeastTimes:
    """The least times of all configs that were timed and whose work is known."""

    configs: tuple[LeastTime, ...]
    bandwidth_gb_s: float
    """10^9 bytes of device memory a second: what was measured on this card for what configs read
    and write, the highest of them."""
    measured: bool = False
    """On this card; otherwise its data sheet says so, which no kernel reaches."""
    l2_bytes: int = 0
    """0 where not known."""
    note: str = ""
    """Why it was not measured."""

    @property
    def by_config(self) -> Mapping[str, LeastTime]:
        """Config -> its least time."""
        return {each.config: each for each in self.configs}

    def shares(self, levels_ms: Mapping[str, float]) -> dict[str, float]:
        """Config -> how much of its nearer roof it attains, where both are known and hold.

        Args:
            levels_ms: config -> latency.
        """
        least = self.by_config
        return {
            config: least[config].share(ms)
            for config, ms in levels_ms.items()
            if config in least and least[config].compute_ms is not None and least[config].holds(ms)
        }

    def reached(self, levels_ms: Mapping[str, float], margin: float) -> bool:
        """Whether all configs are so near to the memory's bandwidth that nothing can be gained.

        Only of a measured roof, of configs that must move all their bytes and do not find them in
        a cache. A product's roof is never held for reached: other kernels than those that
        measured it may be faster.

        Args:
            levels_ms: config -> latency of the incumbent.
            margin: the part of a latency that is not worth another iteration.
        """
        least = self.by_config
        return (
            self.measured
            and bool(levels_ms)
            and all(
                config in least and self._is_at(least[config], ms, margin)
                for config, ms in levels_ms.items()
            )
        )

    def _is_at(self, least: LeastTime, latency_ms: float, margin: float) -> bool:
        return (
            least.certain
            and least.compute_ms is not None
            and least.by_memory
            and 0 < TIMES_THE_CACHE * self.l2_bytes <= least.tensor_bytes
            and least.holds(latency_ms)
            and least.share(latency_ms) >= 1 - margin
        )
