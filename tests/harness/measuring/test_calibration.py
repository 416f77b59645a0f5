"""Calibration within its budget, by real pairs of tests that are slow because they sleep."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.events import Baselined
from agent.frozen_tests import TestPlan
from agent.harness.measuring.budget import MeasuringBudget, final_subset
from agent.harness.measuring.calibration import BudgetedCalibration
from agent.harness.measuring.pytest_judge import PytestJudge
from agent.harness.measuring.timed_pass import TimedPass
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import Checkout, deadline_in
from agent.measuring.decision import Rules, Status
from agent.measuring.measurement import Calibration, ComparisonPlan, Failure
from agent.measuring.pair_cost import PairCost, PairTime
from agent.measuring.screening import Look
from agent.measuring.statistics import Comparison
from agent.measuring.subset import PerfTestCost, Subset
from agent.state import Run
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
WAITING = """
    import time
    import pytest
    from kernel import launch

    @pytest.mark.parametrize("n", range(8))
    def test_perf(n, tile_bench):
        time.sleep(0.2)
        tile_bench(lambda: launch(n))
"""
TIMED = """
    import time

    def launch(n):
        time.sleep(0.001 + n * 0.0002)
"""
NODEIDS = tuple(f"test_kernel.py::test_perf[{n}]" for n in range(8))
COSTS = tuple(
    PerfTestCost(nodeid, 2.0, {f"test_perf[{n}]": n + 1.0}, stepped=False)
    for n, nodeid in enumerate(NODEIDS)
)
NAMES = tuple(f"test_perf[{n}]" for n in range(8))
SHORTEST, LONGEST = NAMES[0], NAMES[-1]
PLAN = TestPlan(("test_kernel.py",), (), NODEIDS)


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
    return Baselined(timed.records, 1, timed.pass_s, costs=timed.costs, start_s=timed.start_s)


@pytest.mark.full
def test_configs_and_not_pairs_are_left_out(judge: PytestJudge, checkout: Checkout) -> None:
    """All eight take about a second a pair: in the time for two such pairs eight are taken."""
    budget = MeasuringBudget(calibration_s=2.4, most_pair_s=60.0)
    budgeted = BudgetedCalibration(judge, baselined(judge, checkout), budget)
    calibration = budgeted.measure(checkout, deadline_in(60))
    assert isinstance(calibration, Calibration)
    assert calibration.pairs >= ComparisonPlan().least
    subset = budgeted.subset
    assert subset is not None
    assert subset.configs[0] == "test_perf[0]"  # the shortest
    assert len(subset.configs) < 8
    assert set(subset.configs) == set(calibration.levels_ms)
    assert calibration.pair_s > 0.05

    comparison = judge.compare(checkout, checkout, None, deadline_in(60))
    assert isinstance(comparison, Comparison)
    assert {config.config for config in comparison.configs} == set(subset.configs)


HELD_ONCE = """
    import fcntl
    import pytest
    from kernel import launch

    class OutOfMemoryError(RuntimeError):
        pass

    @pytest.mark.parametrize("n", range(8))
    def test_perf(n, tile_bench):
        with open(__file__) as memory:
            if n >= 5:
                try:
                    fcntl.flock(memory, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    lacking = OutOfMemoryError("CUDA out of memory")
                    if n == 6:  # as torch.testing does
                        raise RuntimeError("an unexpected exception") from lacking
                    raise lacking from None
            tile_bench(lambda: launch(n))
"""
"""What three of the tests need is there once: the test of one version at a time has it."""


def test_what_the_gpu_does_not_hold_twice_is_never_compared(
    server: ForkServer, tmp_path: Path
) -> None:
    checkout = Project(tmp_path / "project", HELD_ONCE, TIMED).checkout()
    logs = tmp_path / "logs"
    logs.mkdir()
    with closing(PytestJudge(server, PLAN, framework="triton", rules=Rules(), logs=logs)) as judge:
        baseline = baselined(judge, checkout)
        budgeted = BudgetedCalibration(judge, baseline, MeasuringBudget(30.0, most_pair_s=60.0))
        calibration = budgeted.measure(checkout, deadline_in(60))
        assert isinstance(calibration, Calibration)
        subset = budgeted.subset
        assert subset is not None
        assert subset.configs == tuple(calibration.levels_ms) == NAMES[:5]
        assert subset.too_large == subset.left_out == NAMES[5:]
        assert isinstance(judge.compare(checkout, checkout, None, deadline_in(60)), Comparison)
        run = Run(baseline=baseline, calibration=calibration, subset=subset)
        assert final_subset(run) == subset

    with closing(PytestJudge(server, PLAN, framework="triton", rules=Rules(), logs=logs)) as judge:
        chosen = replace(baseline, compared=NAMES[6:])  # and nothing else
        budgeted = BudgetedCalibration(judge, chosen, MeasuringBudget(30.0, most_pair_s=60.0))
        outcome = budgeted.measure(checkout, deadline_in(60))
        assert isinstance(outcome, Failure)
        assert "may take up to half the memory" in outcome.reason


HELD_IN_PASSING = """
    import fcntl
    import time
    import pytest
    from kernel import launch

    class OutOfMemoryError(RuntimeError):
        pass

    @pytest.mark.parametrize("n", range(2))
    def test_perf(n, tile_bench):
        with open(__file__) as memory:
            try:
                fcntl.flock(memory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OutOfMemoryError("CUDA out of memory") from None
            time.sleep(0.15)
        tile_bench(lambda: launch(n))
"""
"""What a test takes for its reference is there once; what it times takes none of it."""


@pytest.mark.full
def test_what_two_versions_hold_in_turn_is_compared(server: ForkServer, tmp_path: Path) -> None:
    checkout = Project(tmp_path / "project", HELD_IN_PASSING, TIMED).checkout()
    logs = tmp_path / "logs"
    logs.mkdir()
    plan = replace(PLAN, perf=PLAN.perf[:2])
    with closing(PytestJudge(server, plan, framework="triton", rules=Rules(), logs=logs)) as judge:
        baseline = baselined(judge, checkout)
        budgeted = BudgetedCalibration(judge, baseline, MeasuringBudget(30.0, most_pair_s=60.0))
        calibration = budgeted.measure(checkout, deadline_in(60))
        assert isinstance(calibration, Calibration), calibration
        assert tuple(calibration.levels_ms) == NAMES[:2]
        assert budgeted.subset is None or not budgeted.subset.too_large
        assert isinstance(judge.compare(checkout, checkout, None, deadline_in(60)), Comparison)
    with closing(PytestJudge(server, plan, framework="triton", rules=Rules(), logs=logs)) as judge:
        assert isinstance(judge.quick_compare(checkout, checkout, 1, deadline_in(60)), Look)


class ByTheClock(ScriptedJudge):
    """Says what a first pair takes, as a multiple of what the costs say; asks no worker.

    It fails for want of memory in one test, if any, as long as that may be compared.
    """

    def __init__(self, factor: float, poor: str = "") -> None:
        self.factor, self.poor = factor, poor
        self.asked: list[tuple[str, ...] | None] = []
        self.limits: list[float] = []

    def compare_on(self, subset: Subset | None) -> None:
        self.asked.append(subset.configs if subset else None)
        tests = [c.nodeid for c in COSTS] if subset is None else subset.tests
        self.time_of_pair = PairTime(0.0, dict.fromkeys(tests, self.factor * 10.0), 0.0, 0)

    def calibrate(
        self,
        checkout: Checkout,
        deadline: float,
        after_first: Callable[[PairTime], None] = lambda _: None,
        until: float = math.inf,
    ) -> Calibration | Failure:
        self.limits.append(until)
        if self.poor in self.time_of_pair.tests_s or self.poor not in ("", *NODEIDS):
            return Failure(Status.CRASH, True, "out of memory", lacks_memory=(self.poor,))
        after_first(self.time_of_pair)
        return Calibration(0.01, {}, band=0.1, pairs=8, pair_time=self.time_of_pair)


@pytest.mark.parametrize(
    ("poor", "costs", "attempts", "ends"),
    [
        (NODEIDS[7], COSTS, 2, Calibration),
        ("test_kernel.py::test_other", COSTS, 1, Failure),  # nothing is known of it
        (NODEIDS[7], (*COSTS[:7], replace(COSTS[7], latencies_ms={})), 1, Failure),
    ],
)
def test_what_cannot_be_left_out_ends_the_calibration(
    checkout: Checkout,
    poor: str,
    costs: tuple[PerfTestCost, ...],
    attempts: int,
    ends: type[Calibration | Failure],
) -> None:
    judge, baseline = ByTheClock(1.0, poor), Baselined((), 1, 1.0, costs=costs)
    budgeted = BudgetedCalibration(judge, baseline, MeasuringBudget(1e6, most_pair_s=1e9))
    assert isinstance(budgeted.measure(checkout, deadline_in(60)), ends)
    assert len(judge.limits) == attempts
    assert len(set(judge.limits)) == 1  # the budget is one


def asked(
    checkout: Checkout, factor: float, calibration_s: float, *chosen: str
) -> list[tuple[str, ...] | None]:
    """The configs that a calibration was begun on, one attempt after the other."""
    judge = ByTheClock(factor)
    baseline = Baselined((), 1, 1.0, compared=chosen, costs=COSTS)
    budget = MeasuringBudget(calibration_s, most_pair_s=1e9)
    assert BudgetedCalibration(judge, baseline, budget).measure(checkout, deadline_in(60))
    return judge.asked


def test_nothing_is_left_out_where_all_fit(checkout: Checkout) -> None:
    assert asked(checkout, 1.0, 8 * 80.0) == [None]


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


@given(
    factor=st.floats(0.01, 100.0),
    calibration_s=st.floats(0.1, 1000.0),
    most_pair_s=st.floats(0.1, 1000.0),
)
def test_one_first_pair_is_thrown_away_at_most(
    factor: float, calibration_s: float, most_pair_s: float
) -> None:
    judge, baseline = ByTheClock(factor), Baselined((), 1, 1.0, costs=COSTS)
    budgeted = BudgetedCalibration(judge, baseline, MeasuringBudget(calibration_s, most_pair_s))
    assert budgeted.measure(Checkout(Path(), (), ""), deadline_in(60))
    assert len(judge.asked) <= 2
    assert len(set(judge.limits)) == 1 and judge.limits[0] < math.inf
    assert budgeted.subset is None or budgeted.subset.configs
    if len(judge.asked) == 2:  # the same is not begun again
        assert judge.asked[0] != judge.asked[1]


def test_a_long_pass_is_cut_off_by_the_budget(server: ForkServer, tmp_path: Path) -> None:
    """No pair fits into it: the fewest are taken, of one config, and the model tells the rest."""
    checkout = Project(tmp_path / "project", WAITING, TIMED).checkout()
    logs = tmp_path / "logs"
    logs.mkdir()
    with closing(PytestJudge(server, PLAN, framework="triton", rules=Rules(), logs=logs)) as judge:
        baseline = baselined(judge, checkout)
        assert baseline.start_s > 0
        assert all(cost.stepped and cost.seconds > 0.2 for cost in baseline.costs)
        budgeted = BudgetedCalibration(judge, baseline, MeasuringBudget(0.1, most_pair_s=60.0))
        calibration = budgeted.measure(checkout, deadline_in(60))
    assert isinstance(calibration, Calibration)
    assert calibration.pairs == ComparisonPlan().least
    assert budgeted.subset is not None and len(budgeted.subset.configs) == 1
    took = calibration.pair_time
    assert took is not None and list(took.tests_s) == list(budgeted.subset.tests)
    assert took.configs == 1 and took.configs_s > 0 and took.fixed_s > 0
    assert 0.2 < sum(took.tests_s.values()) < took.seconds
    cost = PairCost.expected(baseline.costs, baseline.start_s).seen(took)
    assert cost.pair_s(budgeted.subset) == pytest.approx(took.seconds)
    assert cost.pair_s(None) > 8 * 0.2  # each of the others sleeps as long
