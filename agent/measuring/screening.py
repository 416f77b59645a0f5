"""Ranks the variants of a sweep by successive halving. Pure but for the looks, which are handed in.

Every variant gets a short look; the better half a longer one, without those that are far behind;
and so on until one is left. A
single look at a kernel that a power cap slows scatters by more than its variants differ, so the
looks of a variant are added up, and time goes to those that may win.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from agent.measuring.measurement import Failure

SHORT_QUADS = 2
LONG_QUADS = 6
"""Blocks of a look, in ABBA orders."""
MOST_NEAR = 3
"""Variants that are looked at again in other processes."""
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
    is_cut: bool = False
    """Whether the time was over before all configs were measured."""


@dataclass(frozen=True)
class Look:
    """One process pair of a variant and the incumbent."""

    log_ratio: float
    """log(incumbent) - log(variant), the mean over the configs: above zero, the variant is
    faster."""
    latency_ms: float
    """The variant's, the geometric mean over the configs."""
    is_cut: bool = False
    """Whether the time was over before all configs were measured."""


@dataclass
class _Standing:
    sha: str
    rounds: int = 0
    quads: int = 0
    sum_log_ratio: float = 0.0
    latency_ms: float | None = None
    reason: str = "not reached in time"

    @classmethod
    def of(cls, sha: str, seen: ScreenResult | None) -> _Standing:
        """As after a short look, where there was one."""
        if seen is None or seen.improvement is None:
            return cls(sha)
        log_ratio = -math.log1p(-seen.improvement)
        return cls(sha, 1, SHORT_QUADS, SHORT_QUADS * log_ratio, seen.latency_ms)

    @property
    def log_ratio(self) -> float:
        return self.sum_log_ratio / self.quads

    def result(self) -> ScreenResult:
        if not self.quads:
            return ScreenResult(self.sha, None, self.reason)
        improvement = -math.expm1(-self.log_ratio)
        return ScreenResult(self.sha, self.latency_ms, improvement=improvement)


Looks = Callable[[tuple[str, ...], int, bool], Mapping[str, Look | Failure]]
"""Commits, length of the look, whether in fresh processes -> what was seen of each; who is missing
was not reached in time."""


def halve(
    shas: tuple[str, ...],
    look: Looks,
    near: float = 0.0,
    before: Mapping[str, ScreenResult] = MappingProxyType({}),
) -> tuple[tuple[ScreenResult, ...], tuple[str, ...]]:
    """Look at the variants, ever longer at ever fewer.

    Processes of the same code differ, and looks in one process share what that does. Where the
    first are nearer than that, they are looked at again in others.

    Args:
        shas: the variants' commits.
        look: gives what is seen of some of them.
        near: difference of log ratios that processes make by themselves.
        before: what a short look at some of them gave already; it is not taken again.

    Returns:
        What was seen of each, in the order given; and the commits of those that could be timed,
        the most promising first.
    """
    standings = [_Standing.of(sha, before.get(sha)) for sha in shas]
    alive = standings
    quads = SHORT_QUADS if len(shas) > 2 or _are_far_apart(standings) else LONG_QUADS
    if quads == LONG_QUADS:
        for standing in standings:  # all are looked at now, so that none is a round ahead
            standing.rounds = 0
    while True:
        new = [s for s in alive if quads == LONG_QUADS or not s.quads]
        in_time = _round(new, quads, look) if new else True
        alive = sorted((s for s in alive if s.quads), key=lambda s: -s.log_ratio)
        half = alive[: -(-len(alive) // 2)]
        alive = [s for s in half if half[0].log_ratio - s.log_ratio < FAR_BEHIND]
        if not in_time or len(alive) < 2:
            break
        quads = LONG_QUADS
    leaders = _ranked(standings)[:MOST_NEAR]
    close = [s for s in leaders if abs(s.log_ratio - leaders[0].log_ratio) < near]
    if in_time and len(close) > 1:
        for standing in close:  # what they gain from now on ranks them, not who was ahead before
            standing.rounds = close[0].rounds
        _round(close, LONG_QUADS, look, fresh=True)
    return tuple(s.result() for s in standings), tuple(s.sha for s in _ranked(standings))


def _are_far_apart(standings: Sequence[_Standing]) -> bool:
    """Whether earlier looks at all of them leave no doubt which is the best."""
    if not all(standing.quads for standing in standings):
        return False
    first, *others = sorted((s.log_ratio for s in standings), reverse=True)
    return all(first - other >= FAR_BEHIND for other in others)


def _ranked(standings: Sequence[_Standing]) -> list[_Standing]:
    timed = [s for s in standings if s.quads]
    return sorted(timed, key=lambda s: (-s.rounds, -s.log_ratio))


def _round(alive: Sequence[_Standing], quads: int, look: Looks, *, fresh: bool = False) -> bool:
    """Look at each once; whether there was time for all."""
    found = look(tuple(standing.sha for standing in alive), quads, fresh)
    for standing in alive:
        seen = found.get(standing.sha)
        if seen is None:
            continue
        if isinstance(seen, Failure):
            if not (seen.unmeasured and standing.quads):  # what was seen of it before still holds
                standing.quads, standing.latency_ms, standing.reason = 0, None, seen.reason
            continue
        standing.rounds += 1
        standing.quads += quads
        standing.sum_log_ratio += quads * seen.log_ratio
        standing.latency_ms = seen.latency_ms
    return len(found) == len(alive)
