"""Where the wall time of a pair or of a verification goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from agent.measuring.pair_cost import PairTime

AHEAD = "next pairs"
"""The wait for them, so that nothing else runs while blocks are timed."""
OF_CONFIGS = frozenset(
    {"first calls", "prepare", "settle", "blocks", "results", "warm launches", "least time"}
)
"""Items of a pair that are spent on a config, not on its test."""


@dataclass
class SpentTime:
    """Seconds by item."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def on(self, item: str) -> Iterator[None]:
        """Add the time inside to an item, however the block ends."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.seconds[item] = self.seconds.get(item, 0.0) + time.monotonic() - begin

    def rounded(self) -> dict[str, float]:
        """As it is written down."""
        return {item: round(seconds, 4) for item, seconds in self.seconds.items()}


@dataclass
class PairSpent(SpentTime):
    """The same of a pair, with what its perf tests took beside their configs."""

    tests_s: dict[str, float] = field(default_factory=dict)
    """Node id -> seconds, in the order they ran."""
    configs: int = 0
    """How many had their blocks taken inside a test."""
    ahead: int = 0
    """How many of the next pairs were begun meanwhile."""

    def on_test(self, nodeid: str, seconds: float) -> None:
        """Add to what a test took."""
        self.tests_s[nodeid] = self.tests_s.get(nodeid, 0.0) + seconds

    def pair_time(self, whole_s: float) -> PairTime:
        """Where the wall time of the pair went; what nobody can say is its fixed part.

        Of the wait for the pairs that were begun, each of them has a share, and so has this one.
        """
        configs_s = sum(s for item, s in self.seconds.items() if item in OF_CONFIGS)
        theirs_s = self.seconds.get(AHEAD, 0.0) * self.ahead / (self.ahead + 1)
        fixed_s = max(0.0, whole_s - configs_s - theirs_s - sum(self.tests_s.values()))
        return PairTime(fixed_s, dict(self.tests_s), configs_s, self.configs)
