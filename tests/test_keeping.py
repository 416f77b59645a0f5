"""What a keep has to stand besides its comparison: configs that comparisons leave out."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.events import Measured
from agent.harness.measuring import budget
from agent.harness.processes.worker_session import Checkout
from agent.journal import read
from agent.loop import drive
from agent.measuring import statistics
from agent.measuring.decision import Status
from agent.measuring.measurement import Failure
from agent.measuring.statistics import Blocks
from agent.options import Options
from agent.report.result import notes
from agent.state import Phase, Run
from tests.support.repo import make_repo
from tests.support.scenario import ORIGIN, STEPS
from tests.support.scripted import ScriptedRun, Step, kernel
from tests.test_loop import KERNEL, LongPass

TWICE_AS_FAST = Step("double", (kernel(0.5),))
OPTIONS = Options(calibration_budget_s=90.0)


def judged(
    tmp_path: Path, judge: LongPass, *steps: Step, options: Options = OPTIONS
) -> tuple[Run, list[Measured]]:
    """A run of these steps, and what was measured of them."""
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    scripted = ScriptedRun(repo, steps, options)
    run, journal = scripted.begin()
    effects = replace(scripted.effects(), judge=judge)
    run = drive(
        run, journal, effects.table(), lambda *_: None, lambda run: len(run.rows) > len(steps)
    )
    journal.close()
    return run, [e.event for e in read(journal.path) if isinstance(e.event, Measured)]


class SlowerElsewhere(LongPass):
    """What is faster where comparisons look is slower where they do not, or fails there."""

    def __init__(self, failure: Failure | None = None) -> None:
        super().__init__()
        self.failing = failure

    def compare(self, ours: Checkout, theirs: Checkout, *args: Any, **rest: Any) -> Any:
        if "c1" not in self.on:
            return super().compare(ours, theirs, *args, **rest)
        return self.failing or of_c1(super().compare(theirs, ours, *args, **rest))


def of_c1(outcome: Any) -> Any:
    """What a comparison said of its one config, as of that which comparisons leave out."""
    return replace(outcome, configs=(replace(outcome.configs[0], config="c1"),))


@pytest.mark.parametrize(
    ("failure", "status", "said"),
    [
        (
            None,
            Status.REVERT,
            "c1 is 100.0 % slower (at least 99.7 %); the comparison had left it out",
        ),
        (Failure(Status.CRASH, correct=True, reason="killed"), Status.CRASH, "killed"),
        (Failure(Status.CRASH, correct=True, reason="", unmeasured=True), Status.KEEP, "faster by"),
        (Failure(Status.CRASH, correct=True, reason="", lacks_memory=("t1",)), Status.KEEP, ""),
    ],
    ids=["slower", "failing", "unknown", "too large"],
)
def test_a_keep_has_to_stand_on_the_configs_that_comparisons_leave_out(
    tmp_path: Path, failure: Failure | None, status: Status, said: str
) -> None:
    judge = SlowerElsewhere(failure)
    run, _ = judged(tmp_path, judge, TWICE_AS_FAST)
    assert run.rows[1].status is status
    assert run.rows[1].reason.startswith(said)
    assert run.subset is not None and judge.on == run.subset.configs


class SlowerOnce(LongPass):
    """Slower where comparisons do not look, by the first comparison there and no other."""

    elsewhere = 0

    def compare(self, ours: Checkout, theirs: Checkout, *args: Any, **rest: Any) -> Any:
        if "c1" not in self.on:
            return super().compare(ours, theirs, *args, **rest)
        self.elsewhere += 1
        arms = (ours, theirs) if self.elsewhere > 1 else (theirs, ours)
        return of_c1(super().compare(*arms, *args, **rest))


def test_what_is_slower_elsewhere_has_to_be_so_twice(tmp_path: Path) -> None:
    judge = SlowerOnce()
    run, _ = judged(tmp_path, judge, TWICE_AS_FAST)
    assert (run.rows[1].status, judge.elsewhere) == (Status.KEEP, 2)
    assert run.rows[1].reason.endswith("; another is not slower by more than 2.0 %")
    assert ("c1",) in judge.compared_on
    assert run.elsewhere_since_origin["c1"].improvement > 0  # what was refuted is not added up


class Erodes(LongPass):
    """Each step gains where comparisons look, and loses 1.9 % where they do not."""

    def compare(self, *args: Any, **rest: Any) -> Any:
        if "c1" not in self.on:
            return super().compare(*args, **rest)
        pairs = [{"c1": Blocks((level,), (1.019,))} for level in (0.9999, 1.0, 1.0001, 1.0)]
        return statistics.compare(pairs, alpha=0.0125)


def test_small_losses_elsewhere_add_up(tmp_path: Path) -> None:
    steps = (Step(f"s{n}", (kernel(0.8 ** (n + 1)),)) for n in range(2))
    run, (first, second) = judged(tmp_path, Erodes(), *steps)
    assert [row.status for row in run.rows[1:]] == [Status.KEEP, Status.REVERT]
    assert "c1 would be 3.8 % slower than the origin" in run.rows[2].reason
    assert first.elsewhere is not None and second.elsewhere is not None


class Hangs(LongPass):
    """The candidate does not end on what comparisons leave out, before the iteration has to."""

    def compare(
        self, ours: Checkout, theirs: Checkout, known: Any, deadline: float, **rest: Any
    ) -> Any:
        if "c1" not in self.on:
            return super().compare(ours, theirs, known, deadline, **rest)
        time.sleep(max(0.0, deadline - time.monotonic()))
        return Failure(Status.CRASH, correct=True, reason="timed out")


def test_what_hangs_elsewhere_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here an iteration of a second stands for one of ten minutes."""
    monkeypatch.setattr(budget, "ITERATION_SHARE", 1e9)
    options = replace(OPTIONS, iteration_timeout_s=1.0)
    run, _ = judged(tmp_path, Hangs(), TWICE_AS_FAST, options=options)
    assert (run.rows[1].status, run.rows[1].reason) == (Status.CRASH, "timed out")


def test_too_little_time_for_what_is_left_out_is_spent_on_nothing(tmp_path: Path) -> None:
    run, _ = judged(tmp_path, LongPass(), STEPS[3])
    chosen = [budget.left_out_subset(run, within_s) for within_s in (600.0, 120.0, 30.0)]
    assert [each and each.configs for each in chosen] == [("c1", "c6"), ("c6",), None]


class DoesNotFitTwice(LongPass):
    """The GPU does not hold two of what c1's test holds."""

    def compare(self, *args: Any, **rest: Any) -> Any:
        if "c1" in (self.on or ("c1",)):
            self.compared_on.add(self.on)
            return Failure(Status.CRASH, correct=True, reason="out of memory", lacks_memory=("t1",))
        return super().compare(*args, **rest)


def test_what_does_not_fit_twice_is_left_out_and_the_rest_is_compared(tmp_path: Path) -> None:
    """Of a keep elsewhere, and in the last word, which would otherwise not be spoken."""
    judge = DoesNotFitTwice()
    repo = make_repo(tmp_path, {KERNEL: ORIGIN})
    scripted = ScriptedRun(repo, (TWICE_AS_FAST,), OPTIONS)
    run, journal = scripted.begin()
    effects = replace(scripted.effects(), judge=judge)
    run = drive(run, journal, effects.table(), lambda *_: None, lambda run: run.phase is Phase.DONE)
    journal.close()
    assert run.rows[1].status is Status.KEEP
    assert {("c1", "c6"), ("c6",)} <= judge.compared_on
    assert run.finished is not None and run.finished.comparison is not None
    assert run.finished.too_large == ("c1",)
    assert any(line.startswith("never compared: c1, for two versions") for line in notes(run))
