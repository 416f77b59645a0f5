"""A few kills of real runs; `python -m benchmarks.kills` does as many as are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.kills import Target, bytes_of, clone, trial
from tests.support.project import COUNTED
from tests.support.repo import isolate, make_repo, write


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


@pytest.mark.full
def test_runs_that_are_killed_end_as_one_that_is_not(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, COUNTED)
    target = Target(repo, "double.py", (), ("--only", "block-size", "--max-iterations", "1"))
    report = trial(target, tmp_path, kills=1, seed=5, lines=False)
    assert report.faults == []
    assert report.kills == 1


def test_every_byte_of_the_users_is_looked_at(tmp_path: Path) -> None:
    folder = clone(make_repo(tmp_path, COUNTED), tmp_path / "clone")
    before = bytes_of(folder)
    assert {"untracked.txt", "ignored.ours", ".git/index", ".git/refs/stash"} < before.keys()
    write(
        folder, {"ignored.ours": "IGNORED", "sandbox/runs/r1/x": "", ".git/refs/tile-agent/x": ""}
    )
    after = bytes_of(folder)
    assert {key for key in after if before.get(key) != after[key]} == {"ignored.ours"}
