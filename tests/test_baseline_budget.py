"""A baseline that takes longer than the whole run may: it ends there, with a line and a code."""

from __future__ import annotations

import importlib
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.errors import BaselineFailed, BaselineOutrun, ExitCode
from agent.harness.measuring.budget import LEAST_BASELINE_S, baseline_s
from agent.harness.measuring.timed_pass import TimedPass
from agent.harness.measuring.verifier import Verification
from agent.harness.processes.worker_session import Checkout
from agent.loop import drive
from agent.measuring.decision import Status
from agent.measuring.measurement import Failure
from agent.options import Options
from tests.support.repo import isolate, make_repo
from tests.support.scenario import ORIGIN, STEPS
from tests.support.scripted import KERNEL, ScriptedJudge, ScriptedRun

BUDGET_S = 0.3


class Slow(ScriptedJudge):
    """Takes all the time it is given, for one kind of tests, as a worker that is killed then."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def verify(self, checkout: Checkout, deadline: float, **rest: Any) -> Verification | Failure:
        if self._kind == "correctness":
            return killed_at(deadline)
        return super().verify(checkout, deadline, **rest)

    def time(self, checkout: Checkout, deadline: float, **rest: Any) -> TimedPass | Failure:
        if self._kind == "perf":
            return killed_at(deadline)
        return super().time(checkout, deadline, **rest)


def killed_at(deadline: float) -> Failure:
    time.sleep(max(0.0, deadline - time.monotonic()))
    return Failure(Status.CRASH, correct=False, reason="timed out: no answer after 0 s; killed")


def baseline(tmp_path: Path, judge: ScriptedJudge, options: Options) -> None:
    scripted = ScriptedRun(make_repo(tmp_path, {KERNEL: ORIGIN}), STEPS, options)
    run, journal = scripted.begin()
    try:
        drive(run, journal, replace(scripted.effects(), judge=judge).table(), lambda *_: None)
    finally:
        journal.close()


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


@pytest.mark.parametrize("kind", ["correctness", "perf"])
def test_it_ends_where_the_time_of_the_run_ends(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.harness.measuring.budget.LEAST_BASELINE_S", 0.0)
    begin = time.monotonic()
    with pytest.raises(BaselineOutrun) as outrun:
        baseline(tmp_path, Slow(kind), Options(time_budget_s=BUDGET_S))
    assert BUDGET_S <= time.monotonic() - begin < 30.0
    assert str(outrun.value) == (
        f"the {kind} tests of the baseline were not done after --time-budget-s 0.3: "
        f"give it more, or have fewer tests with --{kind}-k"
    )


def test_a_test_that_hangs_without_a_budget_is_a_baseline_that_fails(tmp_path: Path) -> None:
    with pytest.raises(BaselineFailed, match="tests fail before any change: timed out") as failed:
        baseline(tmp_path, Slow("correctness"), Options(iteration_timeout_s=1.0))
    assert not isinstance(failed.value, BaselineOutrun)


def test_what_a_baseline_has() -> None:
    assert baseline_s(Options(time_budget_s=200.0), 10.0) == 190.0
    assert baseline_s(Options(time_budget_s=1.0), 0.0) == LEAST_BASELINE_S
    assert baseline_s(Options(), 10.0) == float("inf")


def test_its_exit_code_is_that_of_a_budget(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def outrun(**_: object) -> int:
        raise BaselineOutrun("the tests were not done")

    command_line = importlib.import_module("agent.cli.main")
    monkeypatch.setattr(command_line, "app", outrun)
    assert command_line._run() == ExitCode.STOPPED
    assert capsys.readouterr().err.count("\n") == 1
