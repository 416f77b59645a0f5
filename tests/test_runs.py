"""The runs of a repository, and what a new one is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.repository import Repository
from agent.runs import new_run_id, runs_folder
from tests.support.repo import isolate, make_repo


def test_runs_that_begin_in_the_same_second_have_ids_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setattr("agent.runs.time.strftime", lambda _: "20261128-072202")
    repository = Repository.open(make_repo(tmp_path, {"double.py": ""}))
    names = []
    for _ in range(3):
        names.append(new_run_id(repository, Path("double.py")))
        (runs_folder(repository) / names[-1]).mkdir(parents=True)
    assert names == [f"double-20261128-072202{end}" for end in ("", "-2", "-3")]
    assert sorted(names) == names, "the newest is the last"
