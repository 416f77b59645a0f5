"""How long the parts of a run may take, which configs fit, and what is told of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.errors import UsageError
from agent.events import Baselined
from agent.harness.measuring.budget import (
    SCREEN_PAIR_S,
    MeasuringBudget,
    chosen_configs,
    final_subset,
    screen_pair_s,
    screened_subset,
)
from agent.measuring.measurement import Calibration
from agent.measuring.subset import PerfTestCost, of_names
from agent.options import Options
from agent.state import Run
from tests.support.history import STARTED

NODEIDS = tuple(f"test_kernel.py::test_perf[{n}]" for n in range(8))
COSTS = tuple(
    PerfTestCost(nodeid, 2.0, {f"test_perf[{n}]": n + 1.0}, stepped=False)
    for n, nodeid in enumerate(NODEIDS)
)


SHORTEST, LONGEST = "test_perf[0]", "test_perf[7]"


def test_what_a_diagnosis_takes_is_part_of_the_budget() -> None:
    """The pairs fill what they are given; compiling and profiling after them come on top."""
    whole = MeasuringBudget.of(Options(calibration_budget_s=90.0))
    assert whole.calibration_s == 90.0
    assert whole.before_diagnosis().calibration_s == pytest.approx(60.0)
    assert whole.before_diagnosis().most_pair_s == whole.most_pair_s


def test_a_choice_goes_by_names_of_configs_and_by_ids_of_tests() -> None:
    assert chosen_configs(COSTS, ["perf[7]", "kernel.py::test_perf[0]"]) == (SHORTEST, LONGEST)
    assert chosen_configs(COSTS, ()) == ()
    with pytest.raises(UsageError, match="no config of the perf tests holds 'bf16' in its name"):
        chosen_configs(COSTS, ["bf16"])


def test_a_short_run_gives_calibration_a_third() -> None:
    assert MeasuringBudget.of(Options()).calibration_s == 90.0
    assert MeasuringBudget.of(Options(time_budget_s=120.0)).calibration_s == 40.0
    assert MeasuringBudget.of(Options(time_budget_s=3600.0)).calibration_s == 90.0


@pytest.mark.parametrize(("pair_took_s", "left_out"), [(10.0, 0), (40.0, 2), (900.0, 6)])
def test_the_final_comparison_covers_what_an_iteration_has_time_for(
    pair_took_s: float, left_out: int
) -> None:
    """Two configs took so long a pair; an iteration's 600 s hold the usual five of 120 s."""
    run = Run(
        started=STARTED,
        baseline=Baselined((), 1, 1.0, costs=COSTS),
        subset=of_names(COSTS, [SHORTEST, LONGEST]),
        calibration=Calibration(0.01, {}, band=0.1, pairs=8, pair_s=pair_took_s),
    )
    whole = final_subset(run)
    assert (len(whole.left_out) if whole else 0) == left_out
    assert final_subset(replace(run, subset=None)) is None


def test_the_final_comparison_covers_what_the_run_has_time_for() -> None:
    run = Run(
        started=replace(STARTED, options=Options(time_budget_s=2000.0)),
        baseline=Baselined((), 1, 1.0, costs=COSTS),
        subset=of_names(COSTS, [SHORTEST, LONGEST]),
        calibration=Calibration(0.01, {}, band=0.1, pairs=8, pair_s=10.0),
    )
    assert final_subset(run) is None
    whole = final_subset(replace(run, spent_s=1999.0))
    assert whole is not None
    assert set(whole.configs) == {SHORTEST, LONGEST}


def test_what_keeps_were_decided_on_is_in_the_final_comparison() -> None:
    decisive = NODEIDS[3]
    run = Run(
        started=replace(STARTED, options=Options(time_budget_s=2000.0)),
        baseline=Baselined((), 1, 1.0, costs=COSTS),
        subset=of_names(COSTS, [decisive.rpartition("::")[2]]),
        calibration=Calibration(0.01, {}, band=0.1, pairs=8, pair_s=10.0),
    )
    for spent_s in (1999.0, 1850.0):
        whole = final_subset(replace(run, spent_s=spent_s))
        assert run.subset is not None and whole is not None
        assert set(run.subset.configs) <= set(whole.configs)
    assert len(whole.configs) > 1


@pytest.mark.parametrize(
    ("compared", "pair_took_s", "looked_at"),
    [
        (NODEIDS, 3.0, NODEIDS),
        (NODEIDS, 80.0, (SHORTEST, LONGEST)),
        (NODEIDS, 16.0, (SHORTEST, LONGEST)),
        (NODEIDS, 9.0, (SHORTEST, "test_perf[3]", LONGEST)),
        (NODEIDS[2:5], 12.0, ("test_perf[2]", "test_perf[4]")),
        (NODEIDS[3:4], 60.0, ("test_perf[3]",)),
    ],
)
def test_a_sweep_is_looked_at_on_configs_that_stand_for_the_others(
    compared: tuple[str, ...], pair_took_s: float, looked_at: tuple[str, ...]
) -> None:
    names = [name.partition("::")[2] for name in compared]
    run = Run(
        baseline=Baselined((), 1, 1.0, costs=COSTS),
        subset=of_names(COSTS, names),
        calibration=Calibration(0.01, {}, band=0.1, pairs=8, pair_s=pair_took_s),
    )
    found = screened_subset(run)
    assert (found.configs if found else NODEIDS) == looked_at
    if found is not None:
        assert len(found.configs) + len(found.left_out) == len(COSTS)


def test_in_a_short_time_a_look_is_at_the_longest_config_alone() -> None:
    costs = tuple(
        PerfTestCost(f"t[{n}]", 0.01, {f"t[{n}]": 0.1 * 2**n}, stepped=True) for n in range(4)
    )
    calibration = Calibration(0.01, {}, band=0.1, pairs=8, pair_s=3.0)
    run = Run(baseline=Baselined((), 1, 1.0, costs=costs), calibration=calibration)
    assert screen_pair_s(9, 30.0) == SCREEN_PAIR_S
    assert screen_pair_s(5, 30.0, tuning_s=9.0) == 0.0
    assert screen_pair_s(5, 30.0, tuning_s=4.8) == pytest.approx(0.8)
    assert screened_subset(run, screen_pair_s(9, 30.0)) is None
    found = screened_subset(run, screen_pair_s(9, 7.0))
    assert found is not None and found.configs == ("t[3]",)


def test_a_config_that_takes_nearly_all_of_the_time_is_left_out_of_a_sweep() -> None:
    costs = (
        PerfTestCost("s", 1.0, {"short": 0.1}, stepped=False),
        PerfTestCost("l", 60.0, {"long": 90.0}, stepped=False),
    )
    found = screened_subset(Run(baseline=Baselined((), 1, 1.0, costs=costs)))
    assert found is not None and found.configs == ("short",)
