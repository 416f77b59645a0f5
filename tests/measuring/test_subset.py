"""Which configs a comparison measures when all of them would take too long."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import pytest

from agent.measuring.pair_cost import CONFIG_S, PairCost
from agent.measuring.subset import PerfTestCost, Subset, of_names

SIXTEEN = [PerfTestCost(f"t[{n}]", 2.0, {f"t[{n}]": 0.1 * 2**n}, stepped=False) for n in range(16)]
REPORT = PerfTestCost("r", 2.0, {f"n={n}": 0.1 * n for n in range(1, 21)}, stepped=True)
OF_TWO = PerfTestCost("two", 1.0, {"two forward": 0.5, "two backward": 90.0}, stepped=False)


def representative(
    costs: Sequence[PerfTestCost],
    most_pair_s: float,
    kernels: Mapping[str, Collection[str]] | None = None,
) -> Subset | None:
    return PairCost.expected(costs).fitting(most_pair_s, kernels)


def looked_at(costs: Sequence[PerfTestCost], most_pair_s: float) -> Subset | None:
    return PairCost.expected(costs).fitting(most_pair_s, longest_alone=True)


def pair_s(costs: Sequence[PerfTestCost], subset: Subset | None) -> float:
    return PairCost.expected(costs).pair_s(subset)


def configs(subset: Subset | None) -> tuple[str, ...]:
    assert subset is not None
    return subset.configs


def test_all_where_they_fit() -> None:
    assert representative(SIXTEEN, 160) is None
    assert representative(SIXTEEN, 159) is not None


def test_shortest_longest_and_the_middle_where_not() -> None:
    assert pair_s(SIXTEEN[:3], None) == 30
    assert configs(representative(SIXTEEN, 70)) == (
        "t[0]", "t[3]", "t[5]", "t[7]", "t[9]", "t[11]", "t[15]"
    )  # fmt: skip
    assert configs(representative(SIXTEEN, 30)) == ("t[0]", "t[7]", "t[15]")


def test_what_is_left_out_is_named_and_counted() -> None:
    subset = representative(SIXTEEN, 20)
    assert subset is not None
    assert subset.tests == subset.configs == ("t[0]", "t[15]")
    assert subset.left_out == tuple(f"t[{n}]" for n in range(1, 15))
    assert subset.coverage == "2 of 16 configs"
    assert pair_s(SIXTEEN, subset) == 20


def test_the_longest_goes_before_where_there_is_time_for_one() -> None:
    assert configs(representative(SIXTEEN, 10)) == ("t[15]",)


def test_one_in_any_case() -> None:
    assert configs(representative(SIXTEEN, 1)) == ("t[0]",)


def test_for_a_look_the_longest_alone_if_it_costs_no_more() -> None:
    assert configs(looked_at(SIXTEEN, 1)) == ("t[15]",)
    dearer = [replace(cost, seconds=1.0 + n) for n, cost in enumerate(SIXTEEN)]
    assert configs(looked_at(dearer, 1)) == ("t[0]",)


def test_the_shortest_goes_first_where_it_alone_fits() -> None:
    alike = [replace(SIXTEEN[0], seconds=1.9), replace(SIXTEEN[15], seconds=2.1)]
    assert configs(looked_at(alike, 10)) == ("t[0]",)
    assert configs(looked_at(alike, 9)) == ("t[15]",)


def test_every_kernel_is_launched_by_one_where_the_time_allows() -> None:
    kernels = {cost.nodeid: {"forward"} for cost in SIXTEEN}
    kernels |= {"t[3]": {"forward", "backward"}, "t[4]": {"backward"}, "t[9]": {"other"}}
    assert configs(representative(SIXTEEN, 40, kernels=kernels)) == (
        "t[0]",
        "t[3]",
        "t[9]",
        "t[15]",
    )
    assert configs(representative(SIXTEEN, 20, kernels=kernels)) == ("t[3]", "t[15]")
    assert configs(representative(SIXTEEN, 1, kernels=kernels)) == ("t[0]",)
    same = {cost.nodeid: {"forward"} for cost in SIXTEEN}
    assert representative(SIXTEEN, 30, kernels=same) == representative(SIXTEEN, 30)


def test_the_choice_is_the_same_whatever_the_order_of_the_tests() -> None:
    found = representative(SIXTEEN[::-1], 30)
    assert set(configs(found)) == {"t[0]", "t[7]", "t[15]"}


def test_pairs_that_took_longer_than_expected_hold_fewer_configs() -> None:
    expected = PairCost.expected(SIXTEEN)
    assert configs(expected.scaled(None, 1.5 * 160).fitting(30)) == ("t[0]", "t[15]")
    assert expected.scaled(None, 0.5 * 160).fitting(80) is None


def test_a_stepped_test_costs_its_setup_and_its_blocks() -> None:
    assert pair_s([REPORT], None) == pytest.approx(4 + 20 * CONFIG_S)


def test_configs_of_a_stepped_test_are_left_out_one_by_one() -> None:
    subset = representative([REPORT], 4 + 3 * CONFIG_S)
    assert subset is not None
    assert (subset.tests, subset.configs) == (("r",), ("n=1", "n=10", "n=20"))
    assert len(subset.left_out) == 17


def test_a_test_that_times_itself_is_measured_as_a_whole() -> None:
    subset = of_names([OF_TWO, REPORT], ["two forward"])
    assert subset is not None
    assert (subset.tests, subset.configs) == (("two",), ("two forward", "two backward"))
    assert of_names([OF_TWO], ["two forward"]) is None
