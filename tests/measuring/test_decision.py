"""Each row of the rules table, at its boundaries and on either side of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.measuring.decision import Gain, Rules, Status, Verdict, decide, percent, signed
from agent.measuring.statistics import Comparison, ConfigComparison, Effect

RULES = Rules()
TINY = 1e-9


def comparison(overall: Effect, *configs: Effect, resolvable: float = 0.013) -> Comparison:
    return Comparison(
        configs=tuple(
            ConfigComparison(f"config{n}", 1.0, 1.0 - effect.improvement, effect)
            for n, effect in enumerate(configs or (overall,))
        ),
        overall=overall,
        incumbent_ms=1.0,
        candidate_ms=1.0 - overall.improvement,
        resolvable=resolvable,
        pairs=5,
    )


def around(improvement: float, half: float = 0.001) -> Effect:
    return Effect(improvement, improvement - half, improvement + half)


def verdict_of(overall: Effect, *configs: Effect) -> tuple[Status, Gain]:
    verdict = decide(comparison(overall, *configs), RULES)
    return verdict.status, verdict.gain


@pytest.mark.parametrize(
    ("improvement", "status", "gain"),
    [
        (0.9995, Status.HELD, Gain.NONE),
        (0.999 - TINY, Status.KEEP, Gain.MAJOR),
        (0.30, Status.KEEP, Gain.MAJOR),
        (0.05 + TINY, Status.KEEP, Gain.MAJOR),
        (0.05, Status.KEEP, Gain.MAJOR),
        (0.05 - TINY, Status.KEEP, Gain.MINOR),
        (0.03, Status.KEEP, Gain.MINOR),
        (0.02 + TINY, Status.KEEP, Gain.MINOR),
        (0.02, Status.KEEP, Gain.MINOR),
        (0.02 - TINY, Status.KEEP, Gain.MARGINAL),
        (0.005, Status.KEEP, Gain.MARGINAL),
        (0.0005, Status.REVERT, Gain.NONE),
        (0.0, Status.REVERT, Gain.NONE),
        (-0.015, Status.REVERT, Gain.NONE),
        (-0.2, Status.REVERT, Gain.NONE),
    ],
)
def test_the_bands(improvement: float, status: Status, gain: Gain) -> None:
    assert verdict_of(around(improvement)) == (status, gain)


@pytest.mark.parametrize(
    ("improvement", "least_ms", "status"),
    [
        (0.6, 0.81, Status.HELD),
        (0.6, 0.8, Status.KEEP),
        (0.6, 0.0, Status.KEEP),
        (0.6, 2.1, Status.KEEP),  # the origin is as fast: it does not write what it seems to
        (-0.1, 1.9, Status.REVERT),
    ],
)
def test_faster_than_its_results_can_be_written(
    improvement: float, least_ms: float, status: Status
) -> None:
    found = comparison(around(improvement))
    configs = tuple(replace(config, least_ms=least_ms) for config in found.configs)
    verdict = decide(replace(found, configs=configs), RULES)
    assert verdict.status is status
    assert ("to write its results alone" in verdict.reason) is (status is Status.HELD)


@pytest.mark.parametrize("improvement", [0.01, 0.03, 0.30])
@pytest.mark.parametrize("low", [0.0, -TINY, -0.5])
def test_an_interval_that_reaches_zero_is_no_improvement(improvement: float, low: float) -> None:
    overall = Effect(improvement, low, 2 * improvement)
    assert verdict_of(overall, around(improvement)) == (Status.REVERT, Gain.NONE)


def test_a_lower_bound_just_above_zero_is_an_improvement() -> None:
    assert verdict_of(Effect(0.3, TINY, 0.5)) == (Status.KEEP, Gain.MAJOR)


@pytest.mark.parametrize(
    ("config", "status"),
    [
        (Effect(-0.02, -0.03, -0.01), Status.KEEP),
        (Effect(-0.02 - TINY, -0.03, -0.01), Status.REVERT),
        (Effect(-0.02 + TINY, -0.03, -0.01), Status.KEEP),
        (Effect(-0.10, -0.20, -TINY), Status.REVERT),
        (Effect(-0.10, -0.20, 0.0), Status.KEEP),
        (Effect(-0.10, -0.20, 0.05), Status.KEEP),
        (Effect(-0.01, -0.015, -0.005), Status.KEEP),
    ],
)
def test_a_config_regresses_beyond_two_percent_with_an_interval_that_excludes_zero(
    config: Effect, status: Status
) -> None:
    found, _ = verdict_of(around(0.25), around(0.5), config)
    assert found is status


def test_one_regressing_config_of_many_reverts_a_large_gain() -> None:
    configs = [around(0.4)] * 30 + [around(-0.031)] + [around(0.4)] * 30
    verdict = decide(comparison(around(0.39), *configs), RULES)
    assert (verdict.status, verdict.gain) == (Status.REVERT, Gain.NONE)
    assert verdict.reason == "config30 is 3.1 % slower (at least 3.0 %)"


def test_the_worst_of_several_regressions_is_named() -> None:
    """The worst config in doubt is not a regression, so it is not the one to name."""
    doubtful = Effect(-0.5, -0.9, 0.1)
    configs = (around(0.5), around(-0.03), around(-0.08), doubtful)
    verdict = decide(comparison(around(0.2), *configs), RULES)
    assert verdict.reason.startswith("config2 is 8.0 % slower")


def test_no_improvement_says_what_would_have_shown() -> None:
    verdict = decide(comparison(Effect(0.004, -0.009, 0.017), resolvable=0.021), RULES)
    said = (
        "no improvement found: +0.4 % [-0.9 %, +1.7 %]; by the noise of this comparison itself, "
        "2.1 % would have shown"
    )
    assert verdict == Verdict(Status.REVERT, Gain.NONE, said)
    of_two = comparison(Effect(0.004, -0.009, 0.017), around(0.0), around(0.0), resolvable=0.021)
    assert decide(of_two, RULES).reason.endswith(", 2.1 % over all configs would have shown")


@pytest.mark.parametrize(
    ("floor", "status"),
    [(0.0, Status.KEEP), (0.029, Status.KEEP), (0.03, Status.REVERT), (0.2, Status.REVERT)],
)
def test_an_improvement_must_be_larger_than_the_noise_floor(floor: float, status: Status) -> None:
    verdict = decide(comparison(around(0.03)), RULES, noise_floor=floor)
    assert verdict.status is status
    assert ("noise floor" in verdict.reason) == (status is Status.REVERT)


def test_a_regression_counts_below_the_noise_floor_too() -> None:
    verdict = decide(comparison(around(0.3), around(-0.03)), RULES, noise_floor=0.1)
    assert verdict.reason == "config0 is 3.0 % slower (at least 2.9 %)"


def test_the_thresholds_are_settable() -> None:
    rules = Rules(major=0.5, minor=0.3, regression=0.1)
    assert decide(comparison(around(0.5)), rules).gain is Gain.MAJOR
    assert decide(comparison(around(0.3)), rules).gain is Gain.MINOR
    assert decide(comparison(around(0.29)), rules).gain is Gain.MARGINAL
    assert decide(comparison(around(0.6), around(-0.1)), rules).status is Status.KEEP
    assert decide(comparison(around(0.6), around(-0.11)), rules).status is Status.REVERT


def test_a_keep_gives_its_figures() -> None:
    assert decide(comparison(around(0.25)), RULES).reason == "faster by +25.0 % [+24.9 %, +25.1 %]"
    marginal = decide(comparison(around(0.01)), RULES).reason
    assert marginal == "faster by +1.0 % [+0.9 %, +1.1 %], under 2.0 %"


def test_percentages() -> None:
    assert (percent(0.0312), signed(0.0312), signed(-0.5)) == ("3.1 %", "+3.1 %", "-50.0 %")


@pytest.mark.parametrize(
    ("overall", "floor", "kept"),
    [
        (around(0.0), 0.0, True),
        (around(-0.015, 0.004), 0.0, True),
        (around(0.005), 0.01, True),
        (around(-0.015, 0.005), 0.0, False),
        (around(0.0, 0.03), 0.0, False),
        (around(-0.2), 0.0, False),
    ],
)
def test_what_saves_something_else_is_kept_where_it_is_as_fast(
    overall: Effect, floor: float, kept: bool
) -> None:
    plain = decide(comparison(overall), RULES, noise_floor=floor)
    verdict = decide(comparison(overall), RULES, noise_floor=floor, saves="the time to tune")
    assert plain.status is Status.REVERT
    assert verdict.gain is Gain.NONE
    assert (verdict.status is Status.KEEP) is kept
    assert ("it saves the time to tune" in verdict.reason) is kept
    regressed = "slower" in verdict.reason
    assert ("not shown to be as fast to within 2.0 %" in verdict.reason) is not (kept or regressed)


def test_a_config_that_is_slower_is_no_saving() -> None:
    overall = comparison(around(0.0), around(0.05), around(-0.05))
    assert decide(overall, RULES, saves="the time to tune").status is Status.REVERT


def test_what_saves_something_else_and_is_faster_is_faster() -> None:
    verdict = decide(comparison(around(0.1)), RULES, saves="the time to tune")
    assert (verdict.gain, verdict.reason[:9]) == (Gain.MAJOR, "faster by")


@pytest.mark.parametrize(
    ("improvement", "status"),
    [
        (1.0 - 1.02, Status.KEEP),  # a float below -0.02
        (-0.02, Status.KEEP),
        (-0.02 - TINY, Status.REVERT),
    ],
)
def test_exactly_two_percent_is_not_more(improvement: float, status: Status) -> None:
    assert verdict_of(around(0.1), around(0.2), around(improvement))[0] is status


def test_small_losses_of_one_config_add_up() -> None:
    step = comparison(around(0.1), around(0.2), around(-0.019))
    first = step.after({})
    assert first == {"config0": step.configs[0].effect, "config1": step.configs[1].effect}
    verdict = decide(step, RULES, since_origin=first)
    assert verdict.status is Status.REVERT
    assert verdict.reason == (
        "config1 would be 3.8 % slower than the origin (at least 3.7 %), with what was kept before"
    )
    assert decide(step, RULES, since_origin={}).status is Status.KEEP
    gained_before = {"config1": around(0.05)}
    assert decide(step, RULES, since_origin=gained_before).status is Status.KEEP


def test_who_makes_it_no_slower_is_not_to_blame() -> None:
    lost = {"config0": around(0.1), "config1": around(-0.03)}
    better = comparison(around(0.1), around(0.2), around(0.001))
    assert decide(better, RULES, since_origin=lost).status is Status.KEEP


def test_a_loss_in_all_that_may_be_none_reverts_nothing() -> None:
    unsure = comparison(around(0.1), around(0.2), Effect(-0.015, -0.05, 0.02))
    before = {"config1": Effect(-0.015, -0.02, -0.01)}
    assert decide(unsure, RULES, since_origin=before).status is Status.KEEP


def test_what_is_kept_for_something_else_is_held_where_it_cannot_be() -> None:
    found = comparison(around(0.0), around(0.1), around(-0.006))
    fast = replace(found.configs[0], least_ms=1.9, incumbent_ms=1.95)
    verdict = decide(replace(found, configs=(fast, found.configs[1])), RULES, saves="tuning")
    assert verdict.status is Status.HELD
