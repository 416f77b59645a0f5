"""Calibration within its budget, by real pairs of tests that are slow because they sleep."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import UsageError
from agent.events import Baselined, TestPlan
from agent.harness.measuring.budget import (
    BudgetedCalibration,
    MeasuringBudget,
    chosen_configs,
    final_subset,
    screened_subset,
)
from agent.harness.measuring.judge import PytestJudge
from agent.harness.measuring.timed_pass import TimedPass
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import Checkout, deadline_in
from agent.measuring.decision import Rules
from agent.measuring.looks import ComparisonPlan
from agent.measuring.measurement import Calibration, Failure
from agent.measuring.statistics import Comparison
from agent.measuring.subset import PerfTestCost, Subset, of_names, pair_s
from agent.options import Options
from agent.report.forecast import forecast
from agent.state import Run
from tests.support.history import STARTED
from tests.support.scripted import ScriptedJudge
from tests.support.workers import Project

SLEEPING = """
    import time
    import pytest
    from kernel import launch

    @pytest.mark.parametrize("n", range(8))
    def test_perf(n, record_property):
        time.sleep(0.02)
        launch()
        ms = (n + 1) * (1 + time.perf_counter_ns() % 1000 / 1e6)
        record_property("benchmark", {"triton": {"forward": {"median": ms}}})
"""
NODEIDS = tuple(f"test_kernel.py::test_perf[{n}]" for n in range(8))
PLAN = TestPlan(("test_kernel.py",), (), NODEIDS)
COSTS = tuple(
    PerfTestCost(nodeid, 2.0, {f"test_perf[{n}]": n + 1.0}, stepped=False)
    for n, nodeid in enumerate(NODEIDS)
)


@pytest.fixture
def judge(server: ForkServer, tmp_path: Path) -> Iterator[PytestJudge]:
    logs = tmp_path / "logs"
    logs.mkdir()
    made = PytestJudge(server, PLAN, framework="triton", rules=Rules(), logs=logs)
    with closing(made) as judge:
        yield judge


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Project(tmp_path / "project", SLEEPING, "def launch(): pass\n").checkout()


def baselined(judge: PytestJudge, checkout: Checkout) -> Baselined:
    timed = judge.time(checkout, deadline_in(60))
    assert isinstance(timed, TimedPass)
    return Baselined(timed.records, 1, timed.pass_s, costs=timed.costs)


@pytest.mark.full
def test_configs_and_not_pairs_are_left_out(judge: PytestJudge, checkout: Checkout) -> None:
    """All eight take about a second a pair: in the time for two such pairs eight are taken."""
    budget = MeasuringBudget(calibration_s=2.4, most_pair_s=60.0)
    budgeted = BudgetedCalibration(judge, baselined(judge, checkout), budget)
    calibration = budgeted.measure(checkout, deadline_in(60))
    assert isinstance(calibration, Calibration)
    assert calibration.pairs in ComparisonPlan().calibration_looks
    subset = budgeted.subset
    assert subset is not None
    assert subset.configs[0] == "test_perf[0]"  # the shortest
    assert len(subset.configs) < 8
    assert set(subset.configs) == set(calibration.levels_ms)
    assert calibration.pair_s > 0.05

    comparison = judge.compare(checkout, checkout, None, deadline_in(60))
    assert isinstance(comparison, Comparison)
    assert {config.config for config in comparison.configs} == set(subset.configs)


class ByTheClock(ScriptedJudge):
    """Says what a first pair takes, as a multiple of what the costs say; asks no worker."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.asked: list[tuple[str, ...] | None] = []

    def compare_on(self, subset: Subset | None) -> None:
        self.asked.append(subset.configs if subset else None)
        self.pair_s = self.factor * pair_s(COSTS, subset)

    def calibrate(
        self,
        checkout: Checkout,
        deadline: float,
        after_first: Callable[[float], None] = lambda _: None,
    ) -> Calibration | Failure:
        after_first(self.pair_s)
        return Calibration(0.01, {}, band=0.1, pairs=8, pair_s=self.pair_s)


def asked(
    checkout: Checkout, factor: float, calibration_s: float, *chosen: str
) -> list[tuple[str, ...] | None]:
    """The configs that a calibration was begun on, one attempt after the other."""
    judge = ByTheClock(factor)
    baseline = Baselined((), 1, 1.0, compared=chosen, costs=COSTS)
    budget = MeasuringBudget(calibration_s, most_pair_s=1e9)
    assert BudgetedCalibration(judge, baseline, budget).measure(checkout, deadline_in(60))
    return judge.asked


SHORTEST, LONGEST = "test_perf[0]", "test_perf[7]"


def test_nothing_is_left_out_where_all_fit(checkout: Checkout) -> None:
    assert asked(checkout, 1.0, 8 * 80.0) == [None]


def test_what_a_diagnosis_takes_is_part_of_the_budget() -> None:
    """The pairs fill what they are given; compiling and profiling after them come on top."""
    whole = MeasuringBudget.of(Options(calibration_budget_s=90.0))
    assert whole.calibration_s == 90.0
    assert whole.before_diagnosis().calibration_s == pytest.approx(60.0)
    assert whole.before_diagnosis().most_pair_s == whole.most_pair_s


def test_the_first_pair_takes_a_third_of_the_budget_at_most(checkout: Checkout) -> None:
    """By the baseline's word: 60 s hold six pairs of one test, and three of two."""
    assert asked(checkout, 0.4, 8 * 8.0)[0] == (SHORTEST, LONGEST)


def test_a_pair_that_is_cheaper_than_expected_makes_room_for_more(checkout: Checkout) -> None:
    first, then = asked(checkout, 0.25, 8 * 8.0)
    assert first == (SHORTEST, LONGEST)
    assert then is not None and len(then) == 3


def test_a_pair_that_is_dearer_than_expected_leaves_one(checkout: Checkout) -> None:
    assert asked(checkout, 3.0, 8 * 8.0) == [(SHORTEST, LONGEST), (SHORTEST,)]


def test_what_the_user_chose_is_measured_whatever_it_takes(checkout: Checkout) -> None:
    assert asked(checkout, 9.0, 1.0, LONGEST, SHORTEST) == [(SHORTEST, LONGEST)]


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


def test_a_config_that_takes_nearly_all_of_the_time_is_left_out_of_a_sweep() -> None:
    costs = (
        PerfTestCost("s", 1.0, {"short": 0.1}, stepped=False),
        PerfTestCost("l", 60.0, {"long": 90.0}, stepped=False),
    )
    found = screened_subset(Run(baseline=Baselined((), 1, 1.0, costs=costs)))
    assert found is not None and found.configs == ("short",)


@pytest.mark.parametrize(
    ("budget_s", "said"),
    [
        (None, "an iteration takes about 65 s, 50 s of that its comparison; all 25 would take 27"),
        (1000.0, "15 fit into the 990 s that are left of the time budget"),
        (70.0, "not one fits into the 60 s that are left"),
    ],
)
def test_what_an_iteration_will_take_is_told(budget_s: float | None, said: str) -> None:
    run = Run(
        started=replace(STARTED, options=Options(time_budget_s=budget_s)),
        baseline=Baselined((), 1, 1.0, costs=COSTS, correctness_s=7.0),
        subset=of_names(COSTS, [SHORTEST, LONGEST]),
        calibration=Calibration(0.01, {}, band=0.1, pairs=8, pair_s=10.0),
        iteration=1,
        spent_s=10.0,
    )
    assert said in str(forecast(run))
