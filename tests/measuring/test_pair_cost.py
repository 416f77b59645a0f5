"""What a pair costs: by the baseline, then by where the time of a pair went."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.measuring.pair_cost import CONFIG_S, PairCost, PairTime
from agent.measuring.subset import PerfTestCost, of_names

SECONDS = st.floats(0.01, 100.0)
COSTS = st.lists(st.tuples(SECONDS, st.integers(1, 4), st.booleans()), min_size=1, max_size=6).map(
    lambda tests: tuple(
        PerfTestCost(
            f"t{t}", seconds, {f"t{t}.{c}": 1.0 + t + c / 8 for c in range(configs)}, waits
        )
        for t, (seconds, configs, waits) in enumerate(tests)
    )
)


def names(costs: tuple[PerfTestCost, ...]) -> list[str]:
    return [name for cost in costs for name in cost.latencies_ms]


def took(truth: PairCost, chosen: set[str]) -> PairTime:
    """What a pair on some configs takes where a model is the truth."""
    ran = [cost for cost in truth.costs if not chosen.isdisjoint(cost.latencies_ms)]
    configs = sum(len(chosen & set(cost.latencies_ms)) for cost in ran if cost.stepped)
    return PairTime(
        truth.fixed_s,
        {cost.nodeid: truth.test_s[cost.nodeid] for cost in ran},
        configs * truth.config_s,
        configs,
    )


@st.composite
def truths(draw: st.DrawFn) -> PairCost:
    costs = draw(COSTS)
    scale = draw(st.floats(0.1, 10.0))
    expected = PairCost.expected(costs)
    return replace(
        expected.scaled(None, scale * expected.pair_s(None)),
        fixed_s=draw(SECONDS),
        config_s=draw(SECONDS),
    )


@given(truth=truths(), data=st.data())
def test_one_pair_tells_what_others_cost(truth: PairCost, data: st.DataObject) -> None:
    """Where tests differ from the baseline by one factor, and each kind was in it, exactly."""
    chosen = set(data.draw(st.lists(st.sampled_from(names(truth.costs)), min_size=1)))
    subset = of_names(truth.costs, chosen)
    whole = set(subset.configs) if subset else set(names(truth.costs))
    time = took(truth, whole)
    model = PairCost.expected(truth.costs).seen(time)
    assert model.pair_s(subset) == pytest.approx(time.seconds)
    kinds = {cost.stepped for cost in truth.costs if cost.nodeid in time.tests_s}
    if kinds == {cost.stepped for cost in truth.costs}:
        assert model.pair_s(None) == pytest.approx(truth.pair_s(None))


@given(truth=truths(), most_pair_s=st.floats(0.1, 2000.0))
def test_what_fits_fits_and_no_config_that_would_is_left_out(
    truth: PairCost, most_pair_s: float
) -> None:
    subset = truth.fitting(most_pair_s)
    units = [unit for cost in truth.costs for unit in cost.units()]
    if subset is None:
        assert truth.pair_s(None) <= most_pair_s or len(units) == 1
        return
    if truth.pair_s(subset) > most_pair_s:  # one in any case
        assert len(subset.tests) == 1
        return
    for unit in units:
        if set(unit) <= set(subset.left_out):
            more = of_names(truth.costs, {*subset.configs, *unit})
            assert truth.pair_s(more) > most_pair_s


@given(truth=truths(), data=st.data())
def test_more_configs_cost_no_less(truth: PairCost, data: st.DataObject) -> None:
    all_of_them = names(truth.costs)
    few = set(data.draw(st.lists(st.sampled_from(all_of_them), min_size=1)))
    more = few | set(data.draw(st.lists(st.sampled_from(all_of_them))))
    assert truth.pair_s(of_names(truth.costs, few)) <= truth.pair_s(of_names(truth.costs, more))


@given(truth=truths(), within_s=st.floats(0.0, 2000.0))
def test_so_many_pairs_fit_and_no_more(truth: PairCost, within_s: float) -> None:
    pairs, pair_s = truth.pairs(within_s, None), truth.pair_s(None)
    assert pairs * pair_s <= within_s * (1 + 1e-9)
    assert (pairs + 1) * pair_s > within_s * (1 - 1e-9)


@given(truth=truths(), took_s=SECONDS)
def test_a_sum_alone_scales_all_parts(truth: PairCost, took_s: float) -> None:
    scaled = truth.scaled(None, took_s)
    assert scaled.pair_s(None) == pytest.approx(took_s)
    assert scaled.config_s / truth.config_s == pytest.approx(scaled.fixed_s / truth.fixed_s)


def waiting(nodeid: str, seconds: float) -> PerfTestCost:
    return PerfTestCost(nodeid, seconds, {nodeid: seconds}, stepped=True)


def test_the_first_test_of_a_worker_tells_nothing_of_the_others() -> None:
    """At the baseline it paid for the GPU's context, and so it took five times as long."""
    costs = (waiting("first", 10.0), waiting("second", 2.0), waiting("third", 3.0))
    seen = PairCost.expected(costs).seen(PairTime(1.0, {"first": 4.0, "second": 2.0}, 1.0, 2))
    assert seen.test_s == {"first": 4.0, "second": 2.0, "third": pytest.approx(3.0)}
    alone = PairCost.expected(costs).seen(PairTime(1.0, {"first": 5.0}, 0.5, 1))
    assert alone.test_s == {"first": 5.0, "second": 1.0, "third": 1.5}
    assert alone.config_s == 0.5


def test_what_was_not_seen_stays_as_it_was_expected() -> None:
    whole = PerfTestCost("whole", 1.0, {"w": 1.0}, stepped=False)
    expected = PairCost.expected((waiting("waiting", 1.0), whole), start_s=3.0)
    assert expected.pair_s(None) == 3.0 + 2.0 + CONFIG_S + 5.0
    seen = expected.seen(PairTime(2.0, {"whole": 10.0, "unknown": 7.0}, 0.0, 0))
    assert seen.pair_s(None) == 2.0 + 2.0 + CONFIG_S + 10.0


def test_the_mean_of_several_pairs() -> None:
    mean = PairTime.mean(
        [PairTime(3.0, {"a": 1.0, "b": 2.0}, 4.0, 2), PairTime(1.0, {"a": 2.0, "b": 2.0}, 2.0, 2)]
    )
    assert mean == PairTime(2.0, {"a": 1.5, "b": 2.0}, 3.0, 2)
