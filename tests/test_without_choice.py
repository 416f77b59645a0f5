"""A run that has nothing to try says so after its baseline; what noise is, nobody needs to know."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.causes import Cause, Diagnosis
from agent.errors import ExitCode
from agent.events import Event, StopReason
from agent.loop import drive
from agent.options import Options
from agent.report.result import exit_code
from agent.report.summary import summarize
from agent.state import Phase, Run
from tests.support.repo import isolate, make_repo
from tests.support.scripted import KERNEL, ScriptedEntry, ScriptedRun, kernel

NOTHING = (ScriptedEntry("a"), ScriptedEntry("b"))


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


class Doctor:
    """Says one thing, and is asked about these latencies."""

    def __init__(self, cause: Cause) -> None:
        self.cause = cause
        self.levels_ms: list[dict[str, float]] = []

    def diagnose(self, _checkout: Any, levels_ms: Any, *_: Any) -> Diagnosis:
        self.levels_ms.append(dict(levels_ms))
        return Diagnosis(self.cause, ("as it looks",))

    def least_times(self, *_: Any) -> None:
        return None


def ended(scripted: ScriptedRun, doctor: Any = None) -> tuple[Run, list[Event]]:
    run, journal = scripted.begin()
    events: list[Event] = []
    effects = replace(scripted.effects(), diagnostician=doctor)
    run = drive(run, journal, effects.table(), lambda _, event: events.append(event))
    journal.close()
    return run, events


def names(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def repo_in(tmp_path: Path) -> Path:
    return make_repo(tmp_path, {KERNEL: kernel(1.0)})


def test_it_ends_as_it_would_after_a_calibration(tmp_path: Path) -> None:
    doctor = Doctor(Cause.MEMORY)
    run, events = ended(ScriptedRun(repo_in(tmp_path), (), entries=NOTHING), doctor)
    assert names(events) == ["Baselined", "Skipped", "Skipped", "Stopped", "Finished"]
    assert run.phase is Phase.DONE and run.calibration is None
    assert run.stopped is not None and run.stopped.reason is StopReason.EXHAUSTED
    assert exit_code(run) is ExitCode.NO_IMPROVEMENT
    assert [each.optimization for each in run.skipped] == ["a", "b"]
    assert [row.optimization for row in run.rows] == ["baseline"]
    assert doctor.levels_ms == [{"c": 1.0}]
    told = summarize(run, "a machine")
    assert "no improvement found" in told
    assert "Held back by: memory" in told
    assert "it needs a loop, and there is none" in told


def test_a_cause_that_nothing_removes_is_for_a_person(tmp_path: Path) -> None:
    doctor = Doctor(Cause.SCHEDULING)
    run, _ = ended(ScriptedRun(repo_in(tmp_path), (), entries=NOTHING), doctor)
    assert exit_code(run) is ExitCode.ESCALATED


@pytest.mark.parametrize("then", ["something applies", "somebody else proposes"])
def test_where_something_may_be_tried_the_noise_is_measured(tmp_path: Path, then: str) -> None:
    entries = (*NOTHING, ScriptedEntry("c", 0.5)) if then == "something applies" else NOTHING
    proposers = ("playbook",) if then == "something applies" else ("playbook", "model")
    scripted = ScriptedRun(repo_in(tmp_path), (), Options(proposers=proposers), entries=entries)
    run, journal = scripted.begin()
    effects = scripted.effects().table()
    run = drive(run, journal, effects, lambda *_: None, lambda now: now.phase is Phase.PROPOSE)
    journal.close()
    assert run.calibration is not None
