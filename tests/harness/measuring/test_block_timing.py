"""How many blocks a config gets, by how many configs there are."""

from __future__ import annotations

import time

import pytest

from agent.harness.measuring.block_timing import LEAST_REPLAYS, BlockTiming
from agent.harness.measuring.timed_calls import FEWEST_FRESH, checked_orders
from agent.measuring.looks import ComparisonPlan


@pytest.mark.parametrize(
    ("configs", "before", "quads", "settle_ms"),
    [(1, 0, 3, 100), (2, 1, 3, 20), (3, 0, 3, 100), (4, 3, 3, 20), (5, 0, 2, 100), (30, 9, 2, 20)],
)
def test_many_configs_get_fewer_blocks_each(
    configs: int, before: int, quads: int, settle_ms: float
) -> None:
    timing = BlockTiming().of_several(configs, before)
    assert (timing.quads, timing.settle_ms) == (quads, settle_ms)
    assert timing.block_ms == BlockTiming().block_ms


def test_a_short_look_stays_short() -> None:
    assert BlockTiming(quads=1, settle_ms=2).of_several(3, 1).quads == 1
    assert BlockTiming(quads=1, settle_ms=2).of_several(3, 1).settle_ms == 2


def test_a_burst_takes_long_enough_for_the_parents_clock_and_no_longer() -> None:
    timing = BlockTiming()
    assert timing.burst(0.002, 1000) == 250
    assert timing.burst(0.05, 100) == 50
    assert timing.burst(1.0, 25) == 10
    assert timing.burst(7.0, 3) == 1


def test_a_comparison_of_the_fewest_pairs_times_enough_calls_on_fresh_bytes() -> None:
    """As a clear gain takes, which is what a memo looks like."""
    for quads in (2, 3, 6):
        seen = 0
        for _ in range(ComparisonPlan().sure_after):
            orders = checked_orders(quads, seen)
            assert orders <= set(range(quads))
            seen += len(orders)
        assert seen >= FEWEST_FRESH
    assert len(checked_orders(6, FEWEST_FRESH)) == 1
    assert checked_orders(1, 0) == {0}
    assert len({frozenset(checked_orders(6, 0)) for _ in range(100)}) > 5


@pytest.mark.parametrize("sample_ms", [0.05, 2.0])
def test_a_block_is_as_long_as_it_is_meant_to_be_whatever_a_sample_takes(sample_ms: float) -> None:
    """A sample of a graph is many launches, and one of a short launch waits for the host."""
    timing, taken = BlockTiming(settle_ms=30, least_samples=5), []

    def take(count: int) -> None:
        taken.append(count)
        time.sleep(count * sample_ms / 1e3)

    seen_ms = timing.settle(take, estimate_ms=0.002)
    assert seen_ms >= sample_ms
    assert sum(taken) * seen_ms >= timing.settle_ms - seen_ms
    assert timing.count(0.002, sample_ms) == timing.block_ms / sample_ms


def test_slow_launches_settle_in_the_fewest_samples() -> None:
    timing, taken = BlockTiming(settle_ms=1), []

    def take(count: int) -> None:
        taken.append(count)
        time.sleep(0.002)

    timing.settle(take, estimate_ms=7.0)
    assert taken == [timing.least_slow_samples]
    assert timing.count(7.0, 7.1) == timing.least_slow_samples
    assert timing.count(0.9, 1.0) == timing.least_samples
    assert timing.count(0.04, 4.0, replays=True) == LEAST_REPLAYS  # each is many launches
    assert timing.count(0.004, 0.2, replays=True) == timing.block_ms / 0.2
