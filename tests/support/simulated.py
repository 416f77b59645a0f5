"""Process pairs from a model of a GPU whose truth is known.

The model: a slow drift (an Ornstein-Uhlenbeck process) that both arms share, a warm-up ramp at the
beginning of a pair, an effect of each process (addresses, code placement), noise and outliers of
each block, and, in hostile surroundings, steps of the clock. The sizes are those of the project's
simulations, chosen above what an H200 was seen to do with memory-bound kernels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from agent.measuring.blocks import Block, ConfigBlocks, RawPair, Telemetry
from agent.measuring.measurement import Failure

BLOCK_S = 0.02
QUADS = 6


@dataclass(frozen=True)
class Surroundings:
    """How noisy it is; fractions of the latency."""

    block: float
    process: float
    drift: float
    outliers: float = 0.02
    """How many blocks are disturbed."""
    step: float = 0.0
    """The size of a clock step."""
    step_every_s: float = 5.0


QUIET = Surroundings(block=0.003, process=0.0007, drift=0.001)
"""About what an H200 shows with kernels that memory holds back: a gain of 1 % is beyond doubt."""
TYPICAL = Surroundings(block=0.01, process=0.006, drift=0.008)
HOSTILE = Surroundings(block=0.02, process=0.012, drift=0.01, outliers=0.05, step=0.06)


@cache
def _warm_up(blocks: int) -> np.ndarray:
    return 0.02 * np.exp(-np.arange(blocks) / 4)


@dataclass
class SimulatedPairs:
    """A source of pairs. `slower`: config -> the candidate's true latency over the incumbent's."""

    surroundings: Surroundings
    slower: Mapping[str, float]
    seed: int
    telemetry: Telemetry | None = None
    reports: float = 1.0
    """What the candidate's worker says its latency is, as a part of the truth."""
    latency_ms: float = 0.5
    _drift: float = field(default=0.0, init=False)
    _step: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    def pair(self, number: int, following: int = 0) -> RawPair | Failure:
        """Blocks in the order that the real source takes them."""
        order = [False, True, True, False] if number % 2 else [True, False, False, True]
        placed = {whose: self._normal(self.surroundings.process) for whose in (True, False)}
        configs = []
        for config, slower in self.slower.items():
            truth = {True: 0.0, False: math.log(slower)}
            blocks = []
            for index, weather in enumerate(self._weather(4 * QUADS)):
                whose = order[index % 4] if index // 4 % 2 == 0 else not order[index % 4]
                latency = self.latency_ms * math.exp(truth[whose] + placed[whose] + weather)
                if whose is False:
                    latency *= self.reports
                blocks.append(Block(whose, latency, latency * 25, 40.0, self.telemetry))
            warm = {whose: 0.95 * self.latency_ms * math.exp(truth[whose]) for whose in truth}
            configs.append(ConfigBlocks(config, tuple(blocks), warm))
        return RawPair(tuple(configs))

    def has_time(self) -> bool:
        """Always."""
        return True

    def pause(self, seconds: float) -> None:
        """No time passes."""

    def _weather(self, blocks: int) -> list[float]:
        """What each block meets whoever runs it, and its own noise: logs of a latency."""
        around = self.surroundings
        keep = math.exp(-BLOCK_S / 2.0)
        moved = around.drift * math.sqrt(1 - keep**2) * self._random.standard_normal(blocks)
        stepped = self._random.random(blocks) < BLOCK_S / around.step_every_s
        disturbed = self._random.random(blocks) < around.outliers
        noise = around.block * self._random.standard_normal(blocks)
        noise += disturbed * abs(0.05 * self._random.standard_normal(blocks))
        noise += _warm_up(blocks)
        weather = []
        steps = stepped.tolist() if around.step else [False] * blocks
        for own, move, steps_now in zip(noise.tolist(), moved.tolist(), steps, strict=True):
            self._drift = keep * self._drift + move
            if steps_now:
                self._step = around.step if self._step == 0 else 0.0
            weather.append(self._drift + self._step + own)
        return weather

    def _normal(self, sd: float) -> float:
        return float(self._random.normal(0.0, sd))
