"""Which perf tests a comparison runs when all of them would take too long."""

from __future__ import annotations

import pytest

from agent.harness.measuring.subset import Cost, comparison_s, representative

SIXTEEN = [Cost(f"t[{n}]", 2.0, 0.1 * 2**n, stepped=False) for n in range(16)]


def test_all_where_they_fit() -> None:
    assert representative(SIXTEEN, 5, 10_000) == tuple(cost.nodeid for cost in SIXTEEN)


def test_shortest_longest_and_the_middle_where_not() -> None:
    assert comparison_s(SIXTEEN[:3], 5) == 150
    assert representative(SIXTEEN, 5, 600) == (
        "t[0]", "t[3]", "t[5]", "t[7]", "t[9]", "t[11]", "t[15]"
    )  # fmt: skip
    assert representative(SIXTEEN, 5, 250) == ("t[0]", "t[7]", "t[15]")


def test_one_in_any_case() -> None:
    assert representative(SIXTEEN, 5, 1) == ("t[0]",)


def test_a_stepped_test_costs_its_setup_and_its_blocks() -> None:
    stepped = Cost("t", 2.0, 0.1, stepped=True)
    assert comparison_s([stepped], 5) == pytest.approx(5 * 5.5)
