"""Ranks the variants of a sweep by successive halving. Pure but for the looks, which are handed in.

Every variant gets a short look; the better half a longer one, without those that are far behind;
and so on until one is left. A
single look at a kernel that a power cap slows scatters by more than its variants differ, so the
looks of a variant are added up, and time goes to those that may win.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from agent.measuring.measurement import Failure

SHORT_QUADS = 2
LONG_QUADS = 6
"""Blocks of a look, in ABBA orders."""
FAR_BEHIND = 0.1
"""A log ratio this much below the leader's is no chance: looks scatter by 0.003 to 0.025."""


@dataclass(frozen=True)
class ScreenResult:
    """What the cheap look at one variant of a sweep gave."""

    sha: str
    latency_ms: float | None
    """None: the variant failed, and `reason` says how."""
    reason: str = ""
    improvement: float | None = None
    """Against the incumbent, beside which it was looked at."""


@dataclass(frozen=True)
class Look:
    """One process pair of a variant and the incumbent."""

    log_ratio: float
    """log(incumbent) - log(variant), the mean over the configs: above zero, the variant is
    faster."""
    latency_ms: float
    """The variant's, the geometric mean over the configs."""


@dataclass
class _Standing:
    sha: str
    rounds: int = 0
    quads: int = 0
    sum_log_ratio: float = 0.0
    latency_ms: float | None = None
    reason: str = "not reached in time"

    @property
    def log_ratio(self) -> float:
        return self.sum_log_ratio / self.quads

    def result(self) -> ScreenResult:
        if not self.quads:
            return ScreenResult(self.sha, None, self.reason)
        improvement = -math.expm1(-self.log_ratio)
        return ScreenResult(self.sha, self.latency_ms, improvement=improvement)


def halve(
    shas: tuple[str, ...], look: Callable[[str, int], Look | Failure | None]
) -> tuple[tuple[ScreenResult, ...], tuple[str, ...]]:
    """Look at the variants, ever longer at ever fewer.

    Args:
        shas: the variants' commits.
        look: takes a commit and the length of the look; None when there is no time for it.

    Returns:
        What was seen of each, in the order given; and the commits of those that could be timed,
        the most promising first.
    """
    standings = [_Standing(sha) for sha in shas]
    alive = standings
    quads = SHORT_QUADS if len(shas) > 2 else LONG_QUADS
    while True:
        in_time = _round(alive, quads, look)
        alive = sorted((s for s in alive if s.quads), key=lambda s: -s.log_ratio)
        half = alive[: -(-len(alive) // 2)]
        alive = [s for s in half if half[0].log_ratio - s.log_ratio < FAR_BEHIND]
        if not in_time or len(alive) < 2:
            break
        quads = LONG_QUADS
    timed = [s for s in standings if s.quads]
    ranked = sorted(timed, key=lambda s: (-s.rounds, -s.log_ratio))
    return tuple(s.result() for s in standings), tuple(s.sha for s in ranked)


def _round(
    alive: list[_Standing], quads: int, look: Callable[[str, int], Look | Failure | None]
) -> bool:
    """Look at each once; whether there was time for all."""
    for standing in alive:
        seen = look(standing.sha, quads)
        if seen is None:
            return False
        if isinstance(seen, Failure):
            if not (seen.unmeasured and standing.quads):  # what was seen of it before still holds
                standing.quads, standing.latency_ms, standing.reason = 0, None, seen.reason
            continue
        standing.rounds += 1
        standing.quads += quads
        standing.sum_log_ratio += quads * seen.log_ratio
        standing.latency_ms = seen.latency_ms
    return True
