"""A run that waits for its assistant, calibrated once for the tests of all files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.project import COUNTED, tile_agent
from tests.support.repo import isolate, make_repo

BEGIN = ("begin", "--kernel", "double.py", "--yes", "--json", "--keep-going", "--patience", "4")


@pytest.fixture(scope="session")
def a_begun_repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a run that waits for its assistant; each test gets a copy."""
    folder = tmp_path_factory.mktemp("begun")
    with pytest.MonkeyPatch.context() as monkeypatch:
        isolate(monkeypatch, folder)
        repo = make_repo(folder, COUNTED)
        end = tile_agent(repo, *BEGIN)
    assert end.code == 0, end.err
    assert (end.json["do"], end.json["iteration"]) == ("next", 1)
    return repo


@pytest.fixture
def begun(a_begun_repo: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(a_begun_repo, tmp_path / "begun"))
