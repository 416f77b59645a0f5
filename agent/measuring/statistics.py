"""From paired blocks of timings to intervals. Pure: no clock, no GPU, no file.

The replicate is the *process pair*, never the launch: launches of one process share its clocks,
its addresses and its code placement, so treating them as independent makes every interval too
narrow. Within a pair the two arms alternate (ABBA, then BAAB), which cancels linear drift.
Differences are taken on the logarithm of the latency, so that an improvement is a ratio and the
weighted geometric mean over the configs is an ordinary weighted mean.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

SPIKE = 0.15
"""Of a log ratio: a block so far from the others is none of the kernel's. On an H100, of 2,580
neighbours in 120 pairs 21 were further off, up to sevenfold, where the host did not come to its
turn, and 2,555 within 3.1 %."""
_LARGEST_LOG = 700.0


@dataclass(frozen=True)
class Blocks:
    """The blocks of one config in one process pair, each a latency in ms."""

    incumbent_ms: tuple[float, ...]
    candidate_ms: tuple[float, ...]

    def log_ratio(self) -> float:
        """The mean, over neighbouring blocks, of log(incumbent / candidate): above zero, it is
        faster. Neighbours that are far from the middle of all are left out.
        """
        neighbours = zip(self.incumbent_ms, self.candidate_ms, strict=True)
        found = [math.log(ours / theirs) for ours, theirs in neighbours]
        middle = statistics.median(found)
        return statistics.fmean([x for x in found if abs(x - middle) <= SPIKE] or found)


Pair = Mapping[str, Blocks]
"""One process pair: config name -> its blocks."""


@dataclass(frozen=True)
class Effect:
    """How much faster the candidate is, as a fraction of the incumbent's latency.

    0.05 means 5 % less time; below zero is a slowdown. `low` and `high` bound it, each at the
    one-sided error rate of the comparison it belongs to.
    """

    improvement: float
    low: float
    high: float


@dataclass(frozen=True)
class ConfigComparison:
    """One config: both latencies (geometric means over the pairs, ms) and the effect."""

    config: str
    incumbent_ms: float
    candidate_ms: float
    effect: Effect
    least_ms: float = 0.0
    """What the device takes to write the results and nothing else; 0 where that is not known."""


@dataclass(frozen=True)
class Comparison:
    """Candidate against incumbent, per config and overall.

    `overall` is the weighted geometric mean over the configs; `resolvable` is the smallest true
    improvement that this many pairs find nine times in ten (the minimum detectable effect), as a
    fraction; `pairs` is the number of process pairs behind it.
    """

    configs: tuple[ConfigComparison, ...]
    overall: Effect
    incumbent_ms: float
    candidate_ms: float
    resolvable: float
    pairs: int
    equal_clock: Effect | None = None
    """The overall effect in clock cycles, where a power cap moved the clock: what would be seen if
    both arms ran at the same one. The verdict is on time, which is what a user gets."""

    def after(self, before: Mapping[str, Effect]) -> dict[str, Effect]:
        """Config -> effect of this change and of those before it, where there are any."""
        here = {c.config: c.effect for c in self.configs}
        return {
            **before,
            **{n: chained(before[n], e) if n in before else e for n, e in here.items()},
        }


def compare(
    pairs: Sequence[Pair],
    *,
    alpha: float,
    config_alpha: float | None = None,
    weights: Mapping[str, float] | None = None,
) -> Comparison:
    """Turn process pairs into a comparison.

    Args:
        pairs: at least two, all of the same configs.
        alpha: one-sided error rate of the overall bounds.
        config_alpha: the same for each config, already corrected for their number; `alpha` divided
            by the number of configs when not given (Bonferroni).
        weights: config -> weight in the overall mean, 1 where there is none.

    Raises:
        ValueError: fewer than two pairs, or pairs that disagree on their configs.
    """
    if len(pairs) < 2:
        raise ValueError(f"{len(pairs)} process pairs; an interval needs at least 2")
    weights = weights or {}
    names = tuple(pairs[0])
    if not names or any(set(pair) != set(names) for pair in pairs):
        raise ValueError("the process pairs do not hold the same configs")
    per_config_alpha = alpha / len(names) if config_alpha is None else config_alpha
    ratios = {name: [pair[name].log_ratio() for pair in pairs] for name in names}
    overall = [weighted_mean({n: ratios[n][k] for n in names}, weights) for k in range(len(pairs))]
    configs = tuple(
        ConfigComparison(
            config=name,
            incumbent_ms=geometric_mean([middle_ms(p[name].incumbent_ms) for p in pairs]),
            candidate_ms=geometric_mean([middle_ms(p[name].candidate_ms) for p in pairs]),
            effect=paired_effect(ratios[name], per_config_alpha),
        )
        for name in names
    )
    return Comparison(
        configs=configs,
        overall=paired_effect(overall, alpha),
        incumbent_ms=weighted_latency_ms({c.config: c.incumbent_ms for c in configs}, weights),
        candidate_ms=weighted_latency_ms({c.config: c.candidate_ms for c in configs}, weights),
        resolvable=minimum_detectable_effect(overall, alpha),
        pairs=len(pairs),
    )


def paired_effect(log_ratios: Sequence[float], alpha: float) -> Effect:
    """Student's t interval of the mean log ratio, as an improvement."""
    mean = math.fsum(log_ratios) / len(log_ratios)
    half = student_t(1 - alpha, len(log_ratios) - 1) * _standard_error(log_ratios)
    return Effect(_improvement(mean), _improvement(mean - half), _improvement(mean + half))


def chained(first: Effect, then: Effect) -> Effect:
    """The effect of two changes in a row, each measured against the one before it.

    They come from different process pairs, so the variances of their logarithms add up; that is the
    interval of the whole at the error rate of the parts, where those are the same.
    """
    parts = [
        (_log_ratio(e.low), _log_ratio(e.improvement), _log_ratio(e.high)) for e in (first, then)
    ]
    mean = math.fsum(middle for _, middle, _ in parts)
    below = math.hypot(*(middle - low for low, middle, _ in parts))
    above = math.hypot(*(high - middle for _, middle, high in parts))
    return Effect(_improvement(mean), _improvement(mean - below), _improvement(mean + above))


def minimum_detectable_effect(
    log_ratios: Sequence[float], alpha: float, power: float = 0.9
) -> float:
    """The true improvement that as many pairs, this noisy, would find with the given power."""
    degrees = len(log_ratios) - 1
    reach = student_t(1 - alpha, degrees) + student_t(power, degrees)
    return _improvement(reach * _standard_error(log_ratios))


def student_t(probability: float, degrees: int) -> float:
    """Quantile of Student's t distribution."""
    from scipy.special import stdtrit  # takes a fifth of a second to import

    return float(stdtrit(degrees, probability))


def geometric_mean(values: Sequence[float]) -> float:
    """Geometric mean; the values must be above zero.

    Raises:
        ValueError: an empty sequence, or a value that is not above zero.
    """
    if not values or any(not value > 0 for value in values):
        raise ValueError(f"a geometric mean needs values above zero, not {list(values)!r}")
    return math.exp(_mean_log(values))


def middle_ms(blocks_ms: Sequence[float]) -> float:
    """The middle of an arm's blocks; of the two in the middle their geometric mean."""
    return math.exp(statistics.median(math.log(value) for value in blocks_ms))


def weighted_mean(values: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Of values by config.

    Args:
        values: config -> value; not empty.
        weights: config -> weight, 1 where there is none.
    """
    total = math.fsum(weights.get(name, 1.0) for name in values)
    return math.fsum(weights.get(name, 1.0) * value for name, value in values.items()) / total


def weighted_latency_ms(latencies_ms: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """The weighted geometric mean of the configs' latencies, in ms."""
    logs = {config: math.log(latency_ms) for config, latency_ms in latencies_ms.items()}
    return math.exp(weighted_mean(logs, weights))


def _mean_log(values: Sequence[float]) -> float:
    return math.fsum(math.log(value) for value in values) / len(values)


def _standard_error(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return math.sqrt(variance / len(values))


def _improvement(log_ratio: float) -> float:
    """log(incumbent / candidate) -> 1 - candidate / incumbent, always a number that JSON knows.

    A few pairs of a very noisy config among many reach a bound that would overflow.
    """
    return -math.expm1(min(-log_ratio, _LARGEST_LOG))


def _log_ratio(improvement: float) -> float:
    """The inverse of `_improvement`."""
    return -math.log1p(-improvement) if improvement < 1 else _LARGEST_LOG


def noise_floor(log_ratios: Sequence[float], size: int, draws: int) -> float:
    """The 95th percentile of |mean| over random subsets with random signs, as an improvement."""
    means = sorted(
        abs(math.fsum(log_ratios[place] * sign for place, sign in subset) / size)
        for subset in _subsets(len(log_ratios), size, draws)
    )
    return -math.expm1(-means[int(0.95 * (len(means) - 1))])


@lru_cache(maxsize=4)
def _subsets(count: int, size: int, draws: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Random places with random signs, the same each time."""
    generator = random.Random(0)
    return tuple(
        tuple((place, generator.choice((-1, 1))) for place in generator.sample(range(count), size))
        for _ in range(draws)
    )
