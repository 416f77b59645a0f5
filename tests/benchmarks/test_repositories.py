"""The benchmark over public repositories, on a small one of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agent.errors import ExitCode
from agent.journal import JournalLine
from benchmarks.repositories import RUNS, RepositoryRun, row, table, times_of, work_on
from tests.support.history import BASELINED, CALIBRATED, HISTORY, STARTED
from tests.support.project import KERNEL, TEST
from tests.support.repo import git, isolate, make_repo
from tests.support.warm_python import warm_interpreter

FILES = {"double.py": KERNEL, "tests/test_double.py": TEST, "pyproject.toml": "[tool.pytest]\n"}


def test_every_run_has_a_name_of_its_own() -> None:
    assert len({run.name for run in RUNS}) == len(RUNS)


def test_times_are_those_of_the_journal() -> None:
    events = [JournalLine(0, 103.0, STARTED), JournalLine(1, 110.0, BASELINED)]
    events.append(JournalLine(2, 140.0, CALIBRATED))
    found = times_of(events, began=100.0)
    assert (found["to_baseline_s"], found["configs"]) == (10.0, len(BASELINED.records))
    assert (found["calibration_s"], found["compared"]) == (20.0, found["configs"])
    assert found["iterations_s"] == []
    whole = times_of([JournalLine(n, 100.0 + n, event) for n, event in enumerate(HISTORY)], 90.0)
    assert whole["iterations_s"]
    assert sum(whole["iterations_s"]) <= sum(event.took_s for event in HISTORY)


def test_a_run_that_could_not_begin_is_a_row(tmp_path: Path) -> None:
    record = {"name": "x", "commit": "0" * 40, "exit_code": 2, "cut": False, "iterations_s": []}
    assert "| 2 | - | - (- of -) | - | 0 | - | - |" in row(record)
    assert table([record]).count("\n") == 3


@pytest.mark.full
def test_a_run_on_a_clone_leaves_the_clone_as_it_is_and_goes_on_after_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    clone = make_repo(tmp_path / "clones", FILES)
    before = git(clone, "for-each-ref")
    monkeypatch.setattr(sys, "executable", warm_interpreter())
    wanted = RepositoryRun(
        "own/double", clone.name, "double.py", ("--python", sys.executable, "--only", "block-size")
    )
    first = work_on(wanted, clone.parent, tmp_path / "out", limit_s=3, iterations=1)
    assert first["cut"]
    record = work_on(wanted, clone.parent, tmp_path / "out", limit_s=200, iterations=1)
    assert work_on(wanted, clone.parent, tmp_path / "out", limit_s=0, iterations=1) == record
    assert record["commit"] == git(clone, "rev-parse", "HEAD")
    ends = (ExitCode.DONE, ExitCode.NO_IMPROVEMENT, ExitCode.STOPPED)  # one iteration is its limit
    assert record["exit_code"] in ends, record["last_line"]
    assert record["to_baseline_s"] > 0 and record["calibration_s"] > 0
    assert record["rows"][0]["optimization"] == "baseline"
    assert git(clone, "for-each-ref") == before
    assert record.get("verified_on_branch", True)
