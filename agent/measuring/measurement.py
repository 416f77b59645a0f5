"""How a comparison is made: which pairs count, when there are enough, what is not a measurement.

Pure but for the source of the pairs, which is handed in: real workers on a GPU, or a simulation
with a known truth, which is how the error rates of the decisions are measured in the tests.

The protocol: process pairs, each with blocks in the order ABBA or BAAB. A pair whose blocks were
disturbed is no evidence for anybody: it is taken again, a few times, and then the comparison ends
as 'could not be measured'. There are two looks, after 5 and after 10 pairs, each at a one-sided
error rate of 1.25 %. An improvement of the rules' full size that even bounds of 0.05 % confirm ends
it after 3 pairs, one that bounds of 0.25 % place between the noise and what the rules reward after
5. Together the error rates stay below 2.9 %, of all attempts of an iteration that may be mended:
each has its share (`agent.measuring.looks`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from agent.measuring.blocks import RawPair, equal_clock, with_least_ms
from agent.measuring.decision import Rules, Status
from agent.measuring.disturbance import disturbance, incumbent_ms, level_problem
from agent.measuring.looks import (
    ComparisonPlan,
    is_hopeless,
    is_settled,
    is_sure,
    is_surely_small,
)
from agent.measuring.pair_cost import PairTime
from agent.measuring.statistics import (
    Blocks,
    Comparison,
    Pair,
    geometric_mean,
    middle_ms,
    minimum_detectable_effect,
    noise_floor,
    weighted_mean,
)

INCUMBENT_BAND = 0.10
"""How far the incumbent may be from its own calibrated latency on a GPU, at least; where it
scattered more when it was calibrated, four standard deviations of that."""
NEW_LEVEL = 3
"""Pairs in which it is faster than that, and all alike, are its new level."""


@dataclass(frozen=True)
class Failure:
    """Why a checkout could not be judged good, or not be judged at all."""

    status: Status
    correct: bool
    """Its results were found right before it failed."""
    reason: str
    incumbent: bool = False
    """The incumbent failed, not the candidate: the machine or the tests are at fault."""
    unmeasured: bool = False
    """Nobody failed: what was measured is no evidence."""
    detail: str = ""
    """All that was said of it, where the reason is a line of that."""
    lacks_memory: tuple[str, ...] = ()
    """The perf tests that ran out of memory, where nothing else failed."""

    @property
    def is_the_candidates(self) -> bool:
        """Whether another text of the kernel could do better."""
        mine = self.status in (Status.REVERT, Status.CRASH)
        return mine and not (self.incumbent or self.unmeasured)


@dataclass(frozen=True)
class Calibration:
    """What the same code against itself gives here: the noise that a keep must exceed."""

    noise_floor: float
    """The apparent improvement that 95 of 100 comparisons of the same code stay below."""
    levels_ms: dict[str, float]
    """Config -> the incumbent's latency."""
    band: float
    """How far the incumbent may be from its level, as a fraction, before it is suspected."""
    pairs: int
    resolvable: dict[str, float] = field(default_factory=dict)
    """Config -> the smallest improvement that as many pairs find nine times in ten."""
    setting: str = ""
    """The driver and the limits of clock and power that this was measured under."""
    launched: bool = True
    """A kernel of the file was launched in what was timed, as far as that was looked at."""
    pair_s: float = 0.0
    """Wall time of a pair; 0 where nobody looked."""
    pair_time: PairTime | None = None
    """Where that went, as far as it was looked at."""


class PairSource(Protocol):
    """Where pairs come from."""

    def pair(self, number: int, following: int) -> RawPair | Failure:
        """Take one process pair; even numbers begin with ABBA, odd ones with BAAB.

        Args:
            number: of the pair.
            following: how many more are to be expected before a look that may well be the last.
        """

    def has_time(self) -> bool:
        """Whether another pair can be taken before the deadline."""

    def pause(self, seconds: float) -> None:
        """Let a disturbance pass."""


def measure(
    source: PairSource,
    rules: Rules,
    plan: ComparisonPlan,
    calibration: Calibration | None = None,
) -> Comparison | Failure:
    """Compare the two arms of a source.

    Returns:
        The comparison; or a failure of one arm; or a failure that says why nothing could be
        measured, which is a verdict on nobody.
    """
    floor = calibration.noise_floor if calibration else 0.0
    taken = _Undisturbed(source, plan, calibration)
    comparison: Comparison | None = None
    early = {n for n in (*plan.early_looks, plan.sure_after) if n < plan.looks[0]}
    for look in sorted({*plan.looks, *early}):
        if failure := taken.up_to(look, plan.sure_after):
            return failure
        try:
            comparison = plan.compare(taken.pairs, plan.alpha)
        except ValueError as problem:
            return unmeasured(str(problem))
        if len(taken.pairs) < look:
            break
        if look in plan.looks:
            done = is_settled(comparison, rules, floor) or is_surely_small(
                taken.pairs, rules, floor, plan
            )
        else:
            done = is_hopeless(comparison, rules) or (
                look == plan.sure_after and is_sure(taken.pairs, rules, floor, plan)
            )
        if done:
            break
    assert comparison is not None  # a plan has at least one look
    configs = with_least_ms(comparison.configs, taken.pairs)
    in_cycles = equal_clock(taken.pairs, plan.share(plan.alpha), plan.weights)
    return replace(comparison, configs=configs, equal_clock=in_cycles)


@dataclass
class _Undisturbed:
    """The pairs of a source that are evidence; disturbed ones are taken again, a few times."""

    source: PairSource
    plan: ComparisonPlan
    calibration: Calibration | None
    within_budget: Callable[[], bool] = lambda: True
    """Whether one more is worth its time, where there are as many as are needed at the least."""
    pairs: list[RawPair] = field(default_factory=list)
    disturbed: int = 0
    faster: list[RawPair] = field(default_factory=list)
    """Pairs in which the incumbent was faster than calibrated, by as much."""
    levels_ms: dict[str, float] | None = None
    """Its level since, where it stays so."""

    def up_to(self, count: int, expecting: int = 0) -> Failure | None:
        """Take pairs until there are `count`, or time runs out; why there are too few, if so.

        Args:
            count: of pairs.
            expecting: so many in all, as a rule.
        """
        while len(self.pairs) < count and self._has_time():
            following = max(count, expecting) - len(self.pairs) - 1
            raw = self.source.pair(len(self.pairs) + self.disturbed, following)
            if isinstance(raw, Failure):
                return raw
            names = {config.config for config in raw.configs}
            if not names or (self.pairs and names != set(self.pairs[0].blocks())):
                return unmeasured("the process pairs do not hold the same configs")
            if (problem := disturbance(raw) or self._off_level(raw)) is None:
                self.pairs.append(raw)
                continue
            self.disturbed += 1
            if self.disturbed > self.plan.disturbed:
                return unmeasured(problem)
            self.source.pause(2.0**self.disturbed)
        if len(self.pairs) < min(count, self.plan.least):
            return unmeasured(f"only {len(self.pairs)} pairs fitted into the time there was")
        return None

    def _off_level(self, raw: RawPair) -> str | None:
        """Why the incumbent is not what it was, where it does not stay so.

        A few pairs that are all there are, and in all of which it is as much faster, are evidence:
        it was measured beside other code before, and short kernels have several levels. Where it
        comes back to what it was, they are forgotten.
        """
        if self.calibration is None:
            return None
        calibrated_ms, band = self.calibration.levels_ms, self.calibration.band
        problem = level_problem(raw, self.levels_ms or calibrated_ms, band)
        if problem is None:
            return None
        if self.levels_ms is not None and level_problem(raw, calibrated_ms, band) is None:
            self.pairs.clear()
            self.levels_ms = None
            return None
        if self.pairs or not problem.is_faster:
            return problem.reason
        alike = [each for each in self.faster if not level_problem(raw, incumbent_ms(each), band)]
        self.faster = [*alike, raw]
        if len(self.faster) < NEW_LEVEL:
            return problem.reason
        if any(incumbent_ms(each).keys() != incumbent_ms(raw).keys() for each in alike):
            return "the process pairs do not hold the same configs"
        self.levels_ms = dict(calibrated_ms)
        for name in incumbent_ms(raw).keys() & calibrated_ms.keys():
            now_ms = geometric_mean([incumbent_ms(each)[name] for each in self.faster])
            if math.log(calibrated_ms[name] / now_ms) > band:  # the others keep theirs
                self.levels_ms[name] = now_ms
        self.pairs += alike
        self.disturbed -= len(alike)
        return None

    def _has_time(self) -> bool:
        few = len(self.pairs) < self.plan.least
        return self.source.has_time() and (few or self.within_budget())


def calibrate(
    source: PairSource,
    plan: ComparisonPlan,
    *,
    draws: int = 2000,
    after_first: Callable[[], None] = lambda: None,
    within_budget: Callable[[], bool] = lambda: True,
) -> Calibration | Failure:
    """Measure the same code against itself, in fewer pairs where there is little noise, or time.

    The noise floor is the 95th percentile of the absolute mean over random subsets, as large as
    the first look, with random signs: an A/A difference is as likely to fall either way.

    Args:
        source: of the pairs.
        plan: of the comparisons that it is for.
        draws: of random subsets.
        after_first: called when there is one pair; what it raises ends the calibration.
        within_budget: asked before each pair beyond the fewest that are a comparison.
    """
    undisturbed = _Undisturbed(source, plan, None, within_budget)
    if failure := undisturbed.up_to(1, plan.calibration_looks[0]):
        return failure
    after_first()
    for look in plan.calibration_looks:
        if failure := undisturbed.up_to(look):
            return failure
        taken = [raw.blocks() for raw in undisturbed.pairs]
        resolvable = {
            config: minimum_detectable_effect(
                [pair[config].log_ratio() for pair in taken], plan.alpha / len(taken[0])
            )
            for config in taken[0]
        }
        ratios = [
            weighted_mean({config: b.log_ratio() for config, b in pair.items()}, plan.weights)
            for pair in taken
        ]
        of_all = minimum_detectable_effect(ratios, plan.alpha)
        known = of_all <= plan.fine and max(resolvable.values()) <= plan.fine_of_one
        if len(taken) < look or known:
            break
    return Calibration(
        noise_floor=noise_floor(ratios, min(plan.looks[0], len(ratios)), draws),
        levels_ms={config: _level([pair[config] for pair in taken]) for config in taken[0]},
        band=max(INCUMBENT_BAND, 4 * _spread(taken)),
        pairs=len(taken),
        resolvable=resolvable,
    )


def _spread(pairs: Sequence[Pair]) -> float:
    """The standard deviation of the configs' log latencies from pair to pair, the largest."""
    return max(
        statistics.stdev([math.log(_level([pair[config]])) for pair in pairs])
        for config in pairs[0]
    )


def _level(blocks: Sequence[Blocks]) -> float:
    return geometric_mean([middle_ms(a) for b in blocks for a in (b.incumbent_ms, b.candidate_ms)])


def unmeasured(reason: str) -> Failure:
    """A verdict on nobody."""
    return Failure(
        Status.CRASH, correct=True, reason=f"could not be measured: {reason}", unmeasured=True
    )
