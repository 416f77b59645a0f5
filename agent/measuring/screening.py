"""Ranks the variants of a sweep by successive halving. Pure but for the looks, which are handed in.

Every variant gets a short look; the better half a longer one, without those that are far behind;
and so on until one is left. A
single look at a kernel that a power cap slows scatters by more than its variants differ, so the
looks of a variant are added up, and time goes to those that may win. Where the best on average
slow a config down by more than the rules allow, the best that does not stays in, and wins if it
gains what the rules reward: the others would be reverted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from agent.measuring.decision import Rules
from agent.measuring.measurement import Failure

SHORT_QUADS = 2
LONG_QUADS = 6
"""Blocks of a look, in ABBA orders."""
MOST_NEAR = 3
"""Variants that are looked at again in other processes."""
FAR_BEHIND = 0.1
"""A log ratio this much below the leader's is no chance: looks scatter by 0.003 to 0.025."""
LEAST_ERROR = 0.01
"""Short looks at the same code scatter by 0.003 to 0.025, whatever many pairs said of the noise."""


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
    slowed: str = ""
    """The config that lost most, if by more than the rules allow and the looks scatter."""


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
    log_ratios: Mapping[str, float] = field(default_factory=dict)
    """Config -> the same of it."""


@dataclass(frozen=True)
class LookRules:
    """What the rules forbid and reward, as far as a look can tell."""

    thresholds: Rules = field(default_factory=Rules)
    resolvable: Mapping[str, float] = field(default_factory=dict)
    """Config -> the smallest change that a comparison finds nine times in ten."""

    def slowed(self, log_ratios: Mapping[str, float], quads: int) -> str:
        """The config that lost most of what it may not, beyond what looks scatter; else empty.

        Args:
            log_ratios: config -> log ratio, the mean over looks.
            quads: how long those were, in all.
        """
        scatter = LEAST_ERROR * math.sqrt(SHORT_QUADS / quads)
        beyond = {
            config: -math.expm1(log_ratio)
            - self.thresholds.regression
            - max(scatter, self.resolvable.get(config, 0.0))
            for config, log_ratio in log_ratios.items()
        }
        worst = max(beyond, key=lambda config: beyond[config], default="")
        return worst if worst and beyond[worst] > 0 else ""

    def would_keep(self, improvement: float, slowed: str) -> bool:
        """As far as looks tell; less than the rules reward is not worth an iteration."""
        return not slowed and improvement >= self.thresholds.minor

    def best(self, seen: Iterable[ScreenResult]) -> ScreenResult | None:
        """The best of what was seen; behind what would be kept what would not."""
        gains = [(each.improvement, each) for each in seen if each.improvement is not None]
        kept = [pair for pair in gains if self.would_keep(pair[0], pair[1].slowed)]
        return max(kept or gains, key=lambda pair: pair[0], default=(0.0, None))[1]


@dataclass
class _Standing:
    sha: str
    rounds: int = 0
    quads: int = 0
    sum_log_ratio: float = 0.0
    latency_ms: float | None = None
    reason: str = "not reached in time"
    slowed: str = ""
    config_quads: int = 0
    """Of the looks whose configs are known: of an earlier one only what came of it is."""
    config_sums: dict[str, float] = field(default_factory=dict)
    """Config -> sum of log ratios."""

    @classmethod
    def of(cls, sha: str, seen: ScreenResult | None) -> _Standing:
        """As after a short look, where there was one."""
        if seen is None or seen.improvement is None:
            return cls(sha)
        log_ratio = -math.log1p(-seen.improvement)
        known = cls(sha, 1, SHORT_QUADS, SHORT_QUADS * log_ratio, seen.latency_ms)
        known.slowed = seen.slowed
        return known

    @property
    def log_ratio(self) -> float:
        return self.sum_log_ratio / self.quads

    def add(self, seen: Look, quads: int, rules: LookRules) -> None:
        """Add a look of so many quads."""
        self.rounds += 1
        self.quads += quads
        self.sum_log_ratio += quads * seen.log_ratio
        self.latency_ms = seen.latency_ms
        self.config_quads += quads
        for config, log_ratio in seen.log_ratios.items():
            self.config_sums[config] = self.config_sums.get(config, 0.0) + quads * log_ratio
        means = {config: total / self.config_quads for config, total in self.config_sums.items()}
        self.slowed = rules.slowed(means, self.config_quads)

    @property
    def improvement(self) -> float:
        return -math.expm1(-self.log_ratio)

    def result(self) -> ScreenResult:
        if not self.quads:
            return ScreenResult(self.sha, None, self.reason)
        return ScreenResult(
            self.sha, self.latency_ms, improvement=self.improvement, slowed=self.slowed
        )


Looks = Callable[[tuple[str, ...], int, bool], Mapping[str, Look | Failure]]
"""Commits, length of the look, whether in fresh processes -> what was seen of each; who is missing
was not reached in time."""


def halve(
    shas: tuple[str, ...],
    look: Looks,
    near: float = 0.0,
    before: Mapping[str, ScreenResult] = MappingProxyType({}),
    rules: LookRules | None = None,
) -> tuple[tuple[ScreenResult, ...], tuple[str, ...]]:
    """Look at the variants, ever longer at ever fewer.

    Processes of the same code differ, and looks in one process share what that does. Where the
    first are nearer than that, they are looked at again in others.

    Args:
        shas: the variants' commits.
        look: gives what is seen of some of them.
        near: difference of log ratios that processes make by themselves.
        before: what a short look at some of them gave already; it is not taken again.
        rules: what a config may lose, and what is rewarded; as the rules are when left out.

    Returns:
        What was seen of each, in the order given; and the commits of those that could be timed,
        the most promising first.
    """
    rules = rules or LookRules()
    standings = [_Standing.of(sha, before.get(sha)) for sha in shas]
    alive = standings
    quads = SHORT_QUADS if len(shas) > 2 or _are_far_apart(standings) else LONG_QUADS
    if quads == LONG_QUADS:
        for standing in standings:  # all are looked at now, so that none is a round ahead
            standing.rounds = 0
    while True:
        new = [s for s in alive if quads == LONG_QUADS or not s.quads]
        in_time = _round(new, quads, look, rules) if new else True
        before_it, alive = alive, _left(alive, rules)
        if not in_time or len(alive) < 2 or (quads == LONG_QUADS and len(alive) == len(before_it)):
            break
        quads = LONG_QUADS
    leaders = _ranked(standings, rules)[:MOST_NEAR]
    close = [s for s in leaders if abs(s.log_ratio - leaders[0].log_ratio) < near]
    if in_time and len(close) > 1:
        for standing in close:  # what they gain from now on ranks them, not who was ahead before
            standing.rounds = close[0].rounds
        _round(close, LONG_QUADS, look, rules, fresh=True)
    ranking = tuple(s.sha for s in _ranked(standings, rules))
    return tuple(s.result() for s in standings), ranking


def _are_far_apart(standings: Sequence[_Standing]) -> bool:
    """Whether earlier looks at all of them leave no doubt which is the best."""
    if not all(standing.quads for standing in standings):
        return False
    first, *others = sorted((s.log_ratio for s in standings), reverse=True)
    return all(first - other >= FAR_BEHIND for other in others)


def _left(alive: Sequence[_Standing], rules: LookRules) -> list[_Standing]:
    """The better half of those that were timed, without those that are far behind; and the best
    that would be kept, where none of those would."""
    timed = sorted((s for s in alive if s.quads), key=lambda s: -s.log_ratio)
    half = timed[: -(-len(timed) // 2)]
    left = [s for s in half if half[0].log_ratio - s.log_ratio < FAR_BEHIND]
    if all(s.slowed for s in left):
        left += [s for s in timed if _would_be_kept(s, rules)][:1]
    return left


def _ranked(standings: Sequence[_Standing], rules: LookRules) -> list[_Standing]:
    timed = [s for s in standings if s.quads]
    others = any(_would_be_kept(s, rules) for s in timed)
    return sorted(timed, key=lambda s: (others and bool(s.slowed), -s.rounds, -s.log_ratio))


def _would_be_kept(standing: _Standing, rules: LookRules) -> bool:
    return rules.would_keep(standing.improvement, standing.slowed)


def _round(
    alive: Sequence[_Standing], quads: int, look: Looks, rules: LookRules, *, fresh: bool = False
) -> bool:
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
        standing.add(seen, quads, rules)
    return len(found) == len(alive)
