"""How many pairs a comparison takes, and when a look at those that there are may end it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent.measuring.blocks import RawPair
from agent.measuring.decision import Gain, Rules, decide
from agent.measuring.statistics import Comparison, compare


@dataclass(frozen=True)
class ComparisonPlan:
    """How many pairs a comparison takes."""

    looks: tuple[int, ...] = (5, 10)
    """Numbers of pairs after which it is judged whether more are needed."""
    least: int = 3
    """Fewer than this, for lack of time, are no comparison."""
    alpha: float = 0.0125
    """One-sided error rate of the bounds at each look, for all attempts of an iteration."""
    attempts: int = 1
    """Comparisons that an iteration may take, each with a candidate of its own. They share the
    error rate of a keep, so that an iteration that may be mended keeps what gained nothing no more
    often than one that may not."""
    early_looks: tuple[int, ...] = (2, 3)
    """Numbers of pairs after which a clear regression ends the comparison. Nothing is kept here,
    so that these looks cost none of the error rate of a keep."""
    sure_after: int = 3
    """Number of pairs after which an improvement beyond doubt ends it too."""
    sure_alpha: float = 0.0005
    """One-sided error rate of the bounds that say so."""
    small_alpha: float = 0.0025
    """The same where a look finds a gain that is there, and under what the rules reward."""
    calibration_looks: tuple[int, ...] = (5, 8)
    """Numbers of pairs of the same code after which it is judged whether its noise is known."""
    fine: float = 0.01
    """It is where they would find an improvement of this size over all, half of what the rules
    reward,"""
    fine_of_one: float = 0.02
    """and one of this size in each config: what the rules ask of a config is that it is not slower
    by more."""
    disturbed: int = 4
    """So many disturbed pairs are taken again before the comparison is given up."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Config -> how much it counts in what is said of all, 1 where there is none."""

    def share(self, alpha: float) -> float:
        """One attempt's part of an error rate."""
        return alpha / self.attempts

    def compare(self, pairs: Sequence[RawPair], alpha: float) -> Comparison:
        """What pairs say, with bounds of the whole at this attempt's share of an error rate.

        The bounds of a config keep all of it: they set candidates aside, and a slowdown is to be
        seen as well in each attempt as in one alone.

        Args:
            pairs: at least two, of the same configs.
            alpha: one-sided, for all attempts.

        Raises:
            ValueError: too few pairs, or pairs that disagree on their configs.
        """
        blocks = [raw.blocks() for raw in pairs]
        of_one = alpha / len(blocks[0]) if blocks and blocks[0] else None
        return compare(blocks, alpha=self.share(alpha), config_alpha=of_one, weights=self.weights)


def is_settled(comparison: Comparison, rules: Rules, noise_floor: float) -> bool:
    """Whether more pairs could not change what matters.

    A regression of the rules' size has been found; or a keep of their size, with no config that
    looks slower without being certain of it; or even the upper bound of the improvement is below
    the size that the rules reward. A small gain that is not beyond doubt is looked at twice: among
    many null edits it is where the false keeps would come from.
    """
    slower = [c.effect for c in comparison.configs if c.effect.improvement < -rules.regression]
    if slower:
        return any(effect.high < 0 for effect in slower)
    verdict = decide(comparison, rules, noise_floor=noise_floor)
    if verdict.gain in (Gain.MAJOR, Gain.MINOR):
        return True
    return comparison.overall.high < rules.minor and not comparison.overall.low > 0


def is_hopeless(comparison: Comparison, rules: Rules) -> bool:
    """Whether even the upper bound of a config is slower than the rules allow.

    Two or three pairs say so of a large slowdown only. That it excludes zero is not enough here:
    of eight configs that never changed, one in hostile surroundings would too often.
    """
    return any(config.effect.high < -rules.regression for config in comparison.configs)


def is_sure(
    pairs: Sequence[RawPair], rules: Rules, noise_floor: float, plan: ComparisonPlan
) -> bool:
    """Whether every config gained what the rules reward most, by bounds that hardly ever fail."""
    return _bounds(pairs, plan.sure_alpha, plan)[0] > max(rules.major, noise_floor)


def is_surely_small(
    pairs: Sequence[RawPair], rules: Rules, noise_floor: float, plan: ComparisonPlan
) -> bool:
    """Whether every config gained something, and less than the rules reward."""
    low, high = _bounds(pairs, plan.small_alpha, plan)
    return low > noise_floor and high < rules.minor


def _bounds(pairs: Sequence[RawPair], alpha: float, plan: ComparisonPlan) -> tuple[float, float]:
    """The lowest and the highest that the whole or a config may have gained."""
    found = plan.compare(pairs, alpha)
    effects = (found.overall, *(config.effect for config in found.configs))
    return min(e.low for e in effects), max(e.high for e in effects)
