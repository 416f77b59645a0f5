"""Intervals against numpy and scipy, computed another way, and their coverage by simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from agent.measuring.statistics import (
    Blocks,
    Effect,
    chained,
    compare,
    geometric_mean,
    middle_ms,
    minimum_detectable_effect,
    paired_effect,
    student_t,
)

LOG_RATIOS = (0.031, 0.048, 0.029, 0.052, 0.040)


def one(incumbent_ms: Sequence[float], candidate_ms: Sequence[float]) -> Blocks:
    return Blocks(tuple(incumbent_ms), tuple(candidate_ms))


def test_the_effect_is_the_t_interval_that_scipy_gives() -> None:
    effect = paired_effect(LOG_RATIOS, alpha=0.0125)
    logs = np.array(LOG_RATIOS)
    low, high = stats.t.interval(
        1 - 2 * 0.0125, df=len(logs) - 1, loc=logs.mean(), scale=stats.sem(logs)
    )
    assert effect.improvement == pytest.approx(1 - np.exp(-logs.mean()), rel=1e-12)
    assert effect.low == pytest.approx(1 - np.exp(-low), rel=1e-12)
    assert effect.high == pytest.approx(1 - np.exp(-high), rel=1e-12)


@pytest.mark.parametrize("alpha", [0.2, 0.05, 0.0125, 0.0001])
@pytest.mark.parametrize("degrees", [1, 2, 4, 30])
def test_the_quantile_is_scipys(alpha: float, degrees: int) -> None:
    assert student_t(1 - alpha, degrees) == pytest.approx(stats.t.ppf(1 - alpha, degrees))


def test_the_bounds_agree_with_a_one_sided_t_test() -> None:
    """The lower bound is above zero exactly where scipy's test rejects 'not faster' at alpha."""
    rng = np.random.default_rng(20)
    verdicts = set()
    for _ in range(200):
        logs = rng.normal(0.01, 0.01, size=4)
        found = paired_effect(list(logs), alpha=0.05).low > 0
        assert found == (stats.ttest_1samp(logs, 0, alternative="greater").pvalue < 0.05)
        verdicts.add(found)
    assert verdicts == {True, False}


def test_five_percent_less_time_is_an_improvement_of_five_percent() -> None:
    effect = paired_effect([math.log(1 / 0.95)] * 3, alpha=0.01)
    assert (effect.improvement, effect.low, effect.high) == pytest.approx((0.05, 0.05, 0.05))


def test_a_slowdown_is_below_zero() -> None:
    """Twice the time is an improvement of -100 %."""
    assert paired_effect([math.log(0.5)] * 3, alpha=0.01).improvement == pytest.approx(-1.0)


def test_swapping_the_arms_mirrors_the_ratio() -> None:
    there = paired_effect(LOG_RATIOS, alpha=0.05)
    back = paired_effect([-r for r in LOG_RATIOS], alpha=0.05)
    assert 1 - back.improvement == pytest.approx(1 / (1 - there.improvement))
    assert 1 - back.high == pytest.approx(1 / (1 - there.low))


def test_a_hopelessly_noisy_config_still_has_finite_bounds() -> None:
    """An infinite bound could not be written to the journal; an overflow would be a crash."""
    effect = paired_effect([-9.0, 9.0], alpha=1e-6)
    assert all(math.isfinite(x) for x in (effect.improvement, effect.low, effect.high))
    assert effect.low < 0 < effect.high
    assert math.isfinite(minimum_detectable_effect([-9.0, 9.0], alpha=1e-6))


def test_two_changes_in_a_row_bound_what_both_do() -> None:
    """The interval of the sum holds the truth at least as often as those of the parts."""
    rng = np.random.default_rng(11)
    truth = 1 - (1 - 0.03) * (1 + 0.02)
    below = above = 0
    for _ in range(2000):
        first, then = (
            paired_effect(list(rng.normal(-math.log1p(-gain), scatter, 5)), alpha=0.025)
            for gain, scatter in ((0.03, 0.01), (-0.02, 0.004))
        )
        both = chained(first, then)
        below += both.low > truth
        above += both.high < truth
    assert max(below, above) / 2000 < 0.025
    assert min(below, above) / 2000 > 0.002  # and it is not so wide that it says nothing


def test_a_change_after_none_is_that_change() -> None:
    effect = paired_effect(LOG_RATIOS, alpha=0.05)
    both = chained(Effect(0.0, 0.0, 0.0), effect)
    assert (both.improvement, both.low, both.high) == pytest.approx(
        (effect.improvement, effect.low, effect.high)
    )
    hopeless = chained(paired_effect([-9.0, 9.0], alpha=1e-6), effect)
    assert math.isfinite(hopeless.low) and math.isfinite(hopeless.high)


def test_a_linear_drift_cancels_within_abba_and_baab() -> None:
    """Clocks that fall steadily through a pair do not look like an effect."""
    drift = [math.exp(0.03 * k) for k in range(4)]
    abba = one([drift[0], drift[3]], [drift[1], drift[2]])
    baab = one([drift[1], drift[2]], [drift[0], drift[3]])
    aabb = one([drift[0], drift[1]], [drift[2], drift[3]])
    assert abba.log_ratio() == pytest.approx(0, abs=1e-12)
    assert baab.log_ratio() == pytest.approx(0, abs=1e-12)
    assert aabb.log_ratio() == pytest.approx(-0.06)


def test_a_block_of_the_hosts_counts_for_neither_arm() -> None:
    """Sevenfold, as one of an H100 was; what differs by a tenth is the kernel's own."""
    quiet = one([1.0, 1.01, 0.99, 1.0, 1.0, 1.0], [0.95] * 6)
    for spike in (0.4, 7.0):
        for at in range(6):
            ours, theirs = list(quiet.incumbent_ms), list(quiet.candidate_ms)
            ours[at] *= spike
            theirs[(at + 2) % 6] *= spike
            found = one(ours, theirs)
            assert found.log_ratio() == pytest.approx(quiet.log_ratio(), abs=0.004)
            assert middle_ms(ours) == pytest.approx(1.0, abs=0.011)
    tenth = one([1.0, 1.1, 1.0, 1.1, 1.0, 1.1], [1.0] * 6)
    assert tenth.log_ratio() == pytest.approx(np.log(1.1) / 2)


def test_a_real_effect_survives_the_drift() -> None:
    drift = [math.exp(0.03 * k) for k in range(4)]
    pair = one([drift[0], drift[3]], [0.9 * drift[1], 0.9 * drift[2]])
    comparison = compare([{"c": pair}] * 3, alpha=0.05)
    assert comparison.overall.improvement == pytest.approx(0.1)


def test_a_comparison_against_numpy() -> None:
    rng = np.random.default_rng(7)
    names = ("small", "large")
    times = {n: rng.lognormal(k, 0.02, size=(5, 2, 2)) for k, n in enumerate(names)}
    pairs = [{n: one(times[n][k, 0], times[n][k, 1]) for n in names} for k in range(5)]
    weights = {"small": 1.0, "large": 3.0}
    comparison = compare(pairs, alpha=0.02, weights=weights)

    logs = {n: np.log(times[n]).mean(axis=2) for n in names}
    ratios = {n: logs[n][:, 0] - logs[n][:, 1] for n in names}
    overall = 0.25 * ratios["small"] + 0.75 * ratios["large"]
    low, high = stats.t.interval(0.96, df=4, loc=overall.mean(), scale=stats.sem(overall))
    assert comparison.overall.improvement == pytest.approx(1 - np.exp(-overall.mean()))
    assert comparison.overall.low == pytest.approx(1 - np.exp(-low))
    assert comparison.overall.high == pytest.approx(1 - np.exp(-high))
    assert comparison.pairs == 5

    for config in comparison.configs:
        each = ratios[config.config]
        low, high = stats.t.interval(0.98, df=4, loc=each.mean(), scale=stats.sem(each))
        assert config.effect.low == pytest.approx(1 - np.exp(-low)), "alpha is halved: 2 configs"
        assert config.effect.high == pytest.approx(1 - np.exp(-high))
        assert config.incumbent_ms == pytest.approx(stats.gmean(times[config.config][:, 0].ravel()))
        assert config.candidate_ms == pytest.approx(stats.gmean(times[config.config][:, 1].ravel()))

    by_name = {c.config: c for c in comparison.configs}
    expected = stats.gmean([by_name[n].incumbent_ms for n in names], weights=[1, 3])
    assert comparison.incumbent_ms == pytest.approx(expected)
    expected = stats.gmean([by_name[n].candidate_ms for n in names], weights=[1, 3])
    assert comparison.candidate_ms == pytest.approx(expected)


def test_the_overall_latencies_and_the_overall_effect_agree() -> None:
    pairs = [
        {"a": one([1.0, 1.1], [0.9, 0.95]), "b": one([4.0, 4.1], [4.2, 4.0])},
        {"a": one([1.0, 1.2], [0.9, 0.91]), "b": one([4.3, 4.1], [4.2, 4.1])},
    ]
    comparison = compare(pairs, alpha=0.05)
    expected = 1 - comparison.candidate_ms / comparison.incumbent_ms
    assert comparison.overall.improvement == pytest.approx(expected)


def test_configs_weigh_the_same_when_nothing_else_is_said() -> None:
    """A config of a thousandfold latency does not drown the others."""
    pairs = [{"a": one([1.0], [0.5]), "b": one([1000.0], [2000.0])}] * 2
    assert compare(pairs, alpha=0.05).overall.improvement == pytest.approx(0)


def test_a_weight_of_zero_leaves_a_config_out_of_the_overall_mean_only() -> None:
    pairs = [{"a": one([1.0], [0.5]), "b": one([1.0], [2.0])}] * 2
    comparison = compare(pairs, alpha=0.05, weights={"b": 0.0})
    assert comparison.overall.improvement == pytest.approx(0.5)
    assert [c.effect.improvement for c in comparison.configs] == [
        pytest.approx(0.5),
        pytest.approx(-1.0),
    ]


def test_the_error_rate_of_a_config_can_be_given() -> None:
    pairs = [{"a": one([1.0], [x]), "b": one([1.0], [x])} for x in (0.9, 0.93, 0.91)]
    wide = compare(pairs, alpha=0.01).configs[0].effect
    narrow = compare(pairs, alpha=0.01, config_alpha=0.2).configs[0].effect
    assert wide.low < narrow.low < narrow.improvement == pytest.approx(wide.improvement)


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_pairs_are_no_interval(count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} process pairs"):
        compare([{"c": one([1.0], [1.0])}] * count, alpha=0.05)


def test_pairs_must_hold_the_same_configs() -> None:
    pairs = [{"a": one([1.0], [1.0])}, {"b": one([1.0], [1.0])}]
    with pytest.raises(ValueError, match="do not hold the same configs"):
        compare(pairs, alpha=0.05)
    with pytest.raises(ValueError, match="do not hold the same configs"):
        compare([{}, {}], alpha=0.05)


@pytest.mark.parametrize("values", [[], [1.0, 0.0], [-1.0], [math.nan]])
def test_a_geometric_mean_needs_values_above_zero(values: list[float]) -> None:
    with pytest.raises(ValueError, match="above zero"):
        geometric_mean(values)


def test_the_geometric_mean_is_scipys() -> None:
    values = [0.5, 2.0, 13.0, 0.001]
    assert geometric_mean(values) == pytest.approx(stats.gmean(values))


def test_more_pairs_and_less_noise_resolve_more() -> None:
    noisy = minimum_detectable_effect([0.0, 0.02, -0.02], alpha=0.0125)
    calm = minimum_detectable_effect([0.0, 0.002, -0.002], alpha=0.0125)
    many = minimum_detectable_effect([0.0, 0.02, -0.02] * 3, alpha=0.0125)
    assert calm < noisy
    assert many < noisy


def test_the_lower_bound_lies_above_the_truth_as_rarely_as_promised() -> None:
    """Coverage of the t interval: the false-accept rate is alpha, on either side, for any pairs."""
    rng = np.random.default_rng(1)
    runs, alpha, truth = 4000, 0.05, 0.03
    true_improvement = 1 - math.exp(-truth)
    allowed = 4 * math.sqrt(alpha * (1 - alpha) / runs)
    for count in (3, 5):
        effects = [paired_effect(list(x), alpha) for x in rng.normal(truth, 0.02, (runs, count))]
        too_high = sum(e.low > true_improvement for e in effects) / runs
        too_low = sum(e.high < true_improvement for e in effects) / runs
        assert too_high == pytest.approx(alpha, abs=allowed)
        assert too_low == pytest.approx(alpha, abs=allowed)


def test_the_detectable_effect_is_found_about_nine_times_in_ten() -> None:
    rng = np.random.default_rng(2)
    alpha, sigma, count, runs = 0.0125, 0.01, 5, 2000
    resolvable = np.median(
        [minimum_detectable_effect(list(x), alpha) for x in rng.normal(0, sigma, (runs, count))]
    )
    shift = -math.log1p(-resolvable)
    found = [paired_effect(list(x), alpha).low > 0 for x in rng.normal(shift, sigma, (runs, count))]
    assert 0.8 < sum(found) / runs < 0.97
