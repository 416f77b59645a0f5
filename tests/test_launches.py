"""What is known of launches follows the incumbent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.events import Measured, Settled, Verified
from agent.journal import replay
from agent.launches import (
    ObservedTuning,
    TunedConfig,
    by_cost,
    configs_shown,
    of_one_timing,
    tuning_costs,
    tunings_of,
)
from agent.measuring.subset import PerfTestCost
from agent.report import progress
from agent.state import Run
from agent.transitions import advance
from tests.support.history import BASELINED, CALIBRATED, LAUNCH, STARTED, comparison, proposed

OTHER = replace(LAUNCH, grid=(16, 1))


def after(improvement: float) -> Run:
    run = advance(replay([STARTED, BASELINED, CALIBRATED]), proposed("x", "a1"))
    run = advance(run, Verified("a1", 12, launches=(OTHER,)))
    run = advance(run, Measured(comparison(improvement)))
    return advance(run, Settled("a2" if improvement > 0 else run.incumbent_sha))


def test_the_baseline_shows_those_of_the_origin() -> None:
    assert replay([STARTED, BASELINED]).launches == (LAUNCH,)


def test_kernels_come_in_the_order_of_their_longest_test() -> None:
    launches = [
        replace(LAUNCH, kernel=kernel, test=test)
        for kernel, test in (("a", "t1"), ("b", "t2"), ("a", "t3"), ("c", "none"), ("d", "t2"))
    ]
    assert by_cost(launches, {"t1": 0.1, "t2": 0.5, "t3": 0.7}) == ("a", "b", "d", "c")
    assert replay([STARTED, BASELINED]).timed_kernels == ("k",)
    assert Run().timed_kernels == ()


def test_a_test_of_two_timings_tells_of_neither() -> None:
    """Also where comparisons measure one of them: both have launched what was seen."""
    cost = PerfTestCost(LAUNCH.test, 1.0, {"forward": 0.1, "backward": 0.2}, stepped=True)
    run = replay([STARTED, replace(BASELINED, costs=(cost,))])
    other = replace(LAUNCH, test="tests/test_other.py::test_perf")
    assert of_one_timing((LAUNCH, other), run.timings_of_tests) == (other,)
    assert of_one_timing((LAUNCH, other), {}) == (LAUNCH, other)
    known = replace(LAUNCH, timings=((LAUNCH.test, "backward"),))
    assert of_one_timing((LAUNCH, known, other), run.timings_of_tests) == (known, other)


def test_a_kept_candidate_s_are_the_incumbent_s() -> None:
    assert after(0.1).launches == (OTHER,)


def test_a_reverted_candidate_s_are_forgotten() -> None:
    assert after(-0.1).launches == (LAUNCH,)


def tuning(*latencies_ms: float | None) -> ObservedTuning:
    configs = tuple(TunedConfig({"BLOCK": n}, {}, ms) for n, ms in enumerate(latencies_ms))
    return ObservedTuning({"n": "1"}, len(configs), 2.0, configs)


@pytest.mark.parametrize(
    ("latencies_ms", "slower", "near"),
    [
        ((1.0, 1.04, 1.06), 0.05, [0, 1]),
        ((1.0, 1.04, 1.06), 0.0, [0]),
        ((None, 3.0, 1.0), 0.05, [2]),
        ((None, None), 0.05, []),
    ],
)
def test_configs_near_the_best(
    latencies_ms: tuple[float | None, ...], slower: float, near: list[int]
) -> None:
    found = tuning(*latencies_ms).near_best(slower)
    assert [config.constants["BLOCK"] for config in found] == near


def test_each_key_is_tuned_once_and_its_cost_is_told() -> None:
    other = replace(LAUNCH, tuning=ObservedTuning({"n": "8"}, 4, 2.5), test="test_other")
    untuned = replace(LAUNCH, kernel="plain", tuning=None)
    launches = (LAUNCH, replace(LAUNCH, test="test_again"), other, untuned)
    assert tunings_of(launches, "k") == (LAUNCH.tuning, other.tuning)
    assert tuning_costs(launches) == (
        "k tries 4 configs for each new key (n): 4 x 1.00 s to compile and time one = 4.0 s; "
        "seen for 2 keys",
    )
    assert tuning_costs((untuned,)) == ()


def test_the_baseline_tells_what_tuning_costs() -> None:
    told = progress.lines(replay([STARTED, BASELINED]), BASELINED)
    assert told[1:3] == [
        "launches   k[64, 1](x=bfloat16[64, 4096], n=4096, BLOCK=64, num_warps=8)",
        "tuning     k tries 2 configs for each new key (n): 2 x 1.75 s to compile and time one "
        "= 3.5 s; seen for 1 key",
    ]


def test_a_tuner_shows_as_many_configs_as_it_launches_on_the_same_tensors() -> None:
    first, second = (replace(LAUNCH, options={"num_warps": warps}) for warps in (4, 8))
    elsewhere = replace(LAUNCH, test="another")
    assert configs_shown([first, second, first, elsewhere]) == {LAUNCH.kernel: 2}
    assert configs_shown([first, elsewhere]) == {LAUNCH.kernel: 1}
    assert configs_shown([]) == {}


def test_two_calls_on_the_same_tensors_are_no_two_configs() -> None:
    calls = [replace(LAUNCH, integers={"BLOCK": 64, "transposed": flag}) for flag in (0, 1)]
    assert configs_shown(calls, {LAUNCH.kernel: {"BLOCK"}}) == {LAUNCH.kernel: 1}
    calls.append(replace(LAUNCH, integers={"BLOCK": 128, "transposed": 1}))
    assert configs_shown(calls, {LAUNCH.kernel: {"BLOCK"}}) == {LAUNCH.kernel: 2}
