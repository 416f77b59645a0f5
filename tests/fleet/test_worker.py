"""A job on a worker, as Ray would ask for it: what is told, and how a lost one goes on."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from agent.environment import Environment, probe
from agent.errors import ExitCode
from agent.fleet.bundles import packed
from agent.fleet.jobs import (
    Ended,
    KernelJob,
    PackedRepository,
    Placed,
    Progressed,
    RefusedByMachine,
    Told,
)
from agent.fleet.worker import attempt
from agent.journal import read
from agent.repository import Repository
from agent.workspace import state_dir
from tests.fleet.held_run import HOLDS
from tests.fleet.project import files_of, scripted_python
from tests.support.repo import isolate, make_repo

BRANCH = "tile-agent/fleet-1/alpha"
WORDS = ("--kernel=ops/alpha.py", f"--branch={BRANCH}", "--only=block-size", "--max-iterations=1")
JOB = KernelJob("alpha", "ops/alpha.py", "triton", BRANCH, WORDS, ".", "", gpus=0)


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setattr(sys, "executable", str(scripted_python(tmp_path)))


@pytest.fixture(scope="module")
def here() -> Environment:
    return probe()


def source_of(tmp_path: Path, files: dict[str, str]) -> PackedRepository:
    return packed(Repository.open(make_repo(tmp_path, files)), "refs/heads/main")


def events(told: Progressed, tmp_path: Path) -> list[str]:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(told.point.journal)
    return [type(line.event).__name__ for line in read(path)]


def test_a_machine_that_does_not_fit_says_so_and_starts_nothing(
    tmp_path: Path, here: Environment
) -> None:
    source = source_of(tmp_path, files_of("alpha"))
    other = replace(here, versions={**here.versions, "triton": "1.0"})
    (told,) = attempt(JOB, source, other, None, "node-7")
    assert isinstance(told, RefusedByMachine) and told.node_id == "node-7"
    assert "not 1.0" in told.reason
    assert not (state_dir() / "fleet").exists()


def test_an_interpreter_that_is_not_there_is_told(tmp_path: Path, here: Environment) -> None:
    source = source_of(tmp_path, files_of("alpha"))
    (told,) = attempt(replace(JOB, python="/nowhere/python"), source, here, None)
    assert isinstance(told, RefusedByMachine) and "/nowhere/python" in told.reason


def test_a_run_that_cannot_begin_ends_as_the_command_does(
    tmp_path: Path, here: Environment
) -> None:
    files = files_of("alpha")
    files["tests/test_alpha.py"] = files["tests/test_alpha.py"].replace("2 * x)", "3 * x)")
    told = [*attempt(JOB, source_of(tmp_path, files), here, None)]
    assert isinstance(told[0], Placed) and isinstance(told[-1], Ended)
    assert told[-1].code == ExitCode.USAGE
    assert "test_alpha" in told[-1].said and told[-1].said.encode() in told[-1].log
    assert [*(state_dir() / "fleet").iterdir()] == [], "the clone is gone"


@pytest.mark.full
def test_a_run_that_is_lost_goes_on_elsewhere(
    tmp_path: Path, here: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends as one that nobody disturbed: the same commits, and each event once."""
    (tmp_path / "alpha.Verified").touch()
    monkeypatch.setenv(HOLDS, str(tmp_path))
    source = source_of(tmp_path, files_of("alpha"))
    first = attempt(JOB, source, here, None)
    reached: Told = next(first)
    while not (isinstance(reached, Progressed) and "Verified" in events(reached, tmp_path)):
        reached = next(first)
    first.close()  # type: ignore[attr-defined]  # as a worker's end does
    assert [*(state_dir() / "fleet").iterdir()] == []

    told = [*attempt(JOB, source, here, reached.point)]
    assert isinstance(told[-1], Ended) and told[-1].code == ExitCode.STOPPED
    last = told[-2]
    assert isinstance(last, Progressed)
    assert last.point.journal.startswith(reached.point.journal)
    assert set(Counter(events(last, tmp_path)).values()) == {1}
    assert last.files["perf_results.md"].count(b"| ") > 2
