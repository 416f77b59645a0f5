"""What is told of the cost of an iteration, and what is said to be unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.events import Baselined
from agent.measuring.decision import Status
from agent.measuring.measurement import Calibration
from agent.measuring.pair_cost import PairTime
from agent.measuring.subset import PerfTestCost, of_names
from agent.options import Options
from agent.report.forecast import forecast
from agent.state import Phase, Row, Run
from tests.support.history import STARTED

COSTS = tuple(PerfTestCost(f"t{n}", 2.0, {f"c{n}": n + 1.0}, stepped=False) for n in range(8))
BASELINED = Baselined((), 1, 1.0, costs=COSTS, correctness_s=7.0)
CALIBRATED = Run(
    started=STARTED,
    baseline=BASELINED,
    subset=of_names(COSTS, ["c0", "c7"]),
    calibration=Calibration(0.01, {}, band=0.1, pairs=8, pair_s=10.0),
    compile_s=18.0,
    iteration=1,
    spent_s=10.0,
)


def within(budget_s: float | None, run: Run = CALIBRATED) -> Run:
    return replace(run, started=replace(STARTED, options=Options(time_budget_s=budget_s)))


@pytest.mark.parametrize(
    ("budget_s", "said"),
    [
        (None, "all 25 would take 35 min"),
        (1000.0, "11 fit into the 990 s that are left of the time budget"),
        (94.0, "not one fits into the 84 s that are left"),  # the first takes 90 s
        (10.0, "nothing is left of the time budget"),
    ],
)
def test_all_parts_of_an_iteration_count(budget_s: float | None, said: str) -> None:
    text = str(forecast(within(budget_s)))
    assert text.startswith(
        "an iteration takes about 83 s: compile 18 s, verification 15 s, comparison 50 s "
        "(100 s where it is close, and before a keep 120 s more); the first one 7 s more; not "
        "known yet: looks before a choice, ranking the variants of a sweep; "
    )
    assert said in text


def test_where_all_configs_are_compared_a_keep_takes_no_more() -> None:
    found = forecast(replace(CALIBRATED, subset=None))
    assert found is not None and found.keep_s == 0 and "before a keep" not in str(found)
    chosen = replace(CALIBRATED, baseline=replace(BASELINED, compared=("c0", "c7")))
    found = forecast(chosen)
    assert found is not None and found.keep_s == 0  # the user left the others out


def test_what_is_not_known_is_said() -> None:
    options = Options(proposers=("model",), tested_shapes_only=True)
    run = replace(CALIBRATED, started=replace(STARTED, options=options), compile_s=None)
    found = forecast(run)
    assert found is not None and found.compile_s is None and found.first_s == 0
    assert found.unknown == ("writing by the model", "compile", "ranking the variants of a sweep")
    assert (
        "about 65 s: verification 15 s, comparison 50 s (100 s where it is close, and before a "
        "keep 120 s more); not"
    ) in str(found)


@pytest.mark.parametrize("scout", [True, False])
def test_looks_are_to_be_expected_on_a_gpu(scout: bool) -> None:
    on_gpu = replace(
        STARTED, environment={"gpus": [{"name": "NVIDIA H100"}]}, options=Options(scout=scout)
    )
    found = forecast(replace(CALIBRATED, started=on_gpu))
    assert found is not None
    assert ("looks before a choice" in found.unknown) is scout


def test_a_pair_is_what_its_parts_were_seen_to_be() -> None:
    time = PairTime(1.0, {"t0": 4.0, "t7": 3.0}, 0.0, 0)
    calibration = replace(CALIBRATED.calibration, pair_time=time)  # type: ignore[type-var]
    found = forecast(replace(CALIBRATED, calibration=calibration))
    assert found is not None and found.comparison_s == 5 * 8.0


def test_iterations_that_were_made_tell_what_the_next_takes() -> None:
    spent_s = {"baseline": 900.0, "propose": 40.0, "verify": 100.0, "measure": 130.0}
    rows = tuple(Row(n, "x", None, True, Status.REVERT) for n in range(3))
    run = replace(CALIBRATED, rows=rows, iteration=3, spent_by_phase_s=spent_s)
    found = forecast(within(None, run))
    assert found is not None and found.seen == 2 and found.first_s == 0
    assert str(found).startswith("an iteration takes about 135 s, the mean of 2; all 23 would take")
    assert found.to_json()["unknown"] == []


def test_nothing_is_told_before_the_calibration() -> None:
    assert forecast(Run(phase=Phase.CALIBRATE, baseline=BASELINED)) is None
