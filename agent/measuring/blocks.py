"""What one process pair measured: blocks of launches, each with the GPU's state. Pure values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent.measuring.statistics import (
    Blocks,
    ConfigComparison,
    Effect,
    Pair,
    geometric_mean,
    paired_effect,
    weighted_mean,
)

POWER_CAP = 0x4
"""NVML's clock event reason for a clock that the power limit holds down."""


@dataclass(frozen=True)
class Telemetry:
    """The GPU at the edge of a block, as NVML tells it."""

    sm_mhz: int
    power_w: float
    temperature_c: int
    event_reasons: int
    foreign_pids: tuple[int, ...] = ()


@dataclass(frozen=True)
class Block:
    """Consecutive samples of one arm."""

    incumbent: bool
    latency_ms: float
    """Their median."""
    reported_ms: float
    """Their sum, by the worker's clock."""
    wall_ms: float
    """What passed on the parent's clock meanwhile."""
    telemetry: Telemetry | None = None
    processor_ms: float = 0.0
    """How long the worker was on a processor meanwhile; 0 on a GPU, or where that is unknown."""
    waited_ms: float = 0.0
    """How long it or the parent waited for one, likewise."""


@dataclass(frozen=True)
class ConfigBlocks:
    """All blocks of one config in one process pair, in the order they were taken."""

    config: str
    blocks: tuple[Block, ...]
    warm_ms: Mapping[bool, float] = field(default_factory=dict)
    """incumbent? -> time of a warm launch by the parent's clock; empty where it was not taken."""
    least_ms: float = 0.0
    """What the device takes to write the results and nothing else; 0 where that is not known."""
    keeps_host: bool = False
    """A call of the incumbent keeps the host for so long that the GPU has to wait for it."""

    def arm(self, *, incumbent: bool) -> tuple[float, ...]:
        """The latencies of one arm."""
        return tuple(b.latency_ms for b in self.blocks if b.incumbent is incumbent)

    def log_ratio(self) -> float:
        """As the statistics see it: above zero, the candidate takes less time."""
        return Blocks(self.arm(incumbent=True), self.arm(incumbent=False)).log_ratio()

    def log_clock_ratio(self) -> float:
        """log(incumbent's clock / candidate's); every block must have been read."""
        mhz = {
            whose: geometric_mean(
                [b.telemetry.sm_mhz for b in self.blocks if b.incumbent is whose and b.telemetry]
            )
            for whose in (True, False)
        }
        return math.log(mhz[True] / mhz[False])


@dataclass(frozen=True)
class RawPair:
    """One process pair as measured."""

    configs: tuple[ConfigBlocks, ...]
    chosen: Mapping[bool, Mapping[str, str]] = field(default_factory=dict)
    """incumbent? -> what kernels that tune themselves ran with."""

    def blocks(self) -> Pair:
        """What the statistics need of it."""
        return {
            c.config: Blocks(c.arm(incumbent=True), c.arm(incumbent=False)) for c in self.configs
        }


def equal_clock(
    pairs: Sequence[RawPair], alpha: float, weights: Mapping[str, float]
) -> Effect | None:
    """The overall effect in cycles; None where no power cap was at work, or no clock was read."""
    telemetry = [b.telemetry for raw in pairs for c in raw.configs for b in c.blocks]
    if not any(t and t.event_reasons & POWER_CAP for t in telemetry):
        return None
    if not all(t and t.sm_mhz > 0 for t in telemetry):
        return None
    return paired_effect(
        [
            weighted_mean(
                {c.config: c.log_ratio() + c.log_clock_ratio() for c in raw.configs}, weights
            )
            for raw in pairs
        ],
        alpha,
    )


def with_least_ms(
    configs: Sequence[ConfigComparison], pairs: Sequence[RawPair]
) -> tuple[ConfigComparison, ...]:
    """The configs with what the device takes to write their results, as the pairs found it."""
    found: dict[str, float] = {}
    for measured in (blocks for raw in pairs for blocks in raw.configs):
        before = found.setdefault(measured.config, measured.least_ms)
        found[measured.config] = min(before, measured.least_ms)
    return tuple(replace(config, least_ms=found[config.config]) for config in configs)
