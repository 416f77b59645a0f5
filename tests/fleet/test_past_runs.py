"""What earlier runs found travels with the repository, and what a fleet found is known at home."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from agent.fleet.bundles import (
    bundled,
    packed,
    past_journals,
    remembered,
    unbundled,
    unpacked,
)
from agent.options import Options
from agent.repository import Repository
from agent.state import Run
from tests.support.repo import isolate, make_repo
from tests.support.scripted import KERNEL, ScriptedRun, Step, kernel

STEPS = (Step("slower", (kernel(1.2),)), Step("faster", (kernel(0.5),)))
MORE = (*STEPS, Step("worse", (kernel(0.9),)))


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


def tried(run: Run) -> list[str]:
    return [row.optimization for row in run.rows[1:]]


def test_an_edit_that_failed_is_tried_once_at_home_and_in_fleets(tmp_path: Path) -> None:
    files = {KERNEL: kernel(1.0), "other.py": ""}
    home = Repository.open(make_repo(tmp_path, files))
    first = ScriptedRun(home.root, STEPS, Options(keep_going=True))
    assert tried(first.finish()) == ["slower (n=0)", "faster (n=0)"]

    source = packed(home, "refs/heads/main")
    past = past_journals(home)
    assert past.keys() == {KERNEL}
    (tmp_path / "clone").mkdir()
    clone = unpacked(source, tmp_path / "clone")
    remembered(clone, past[KERNEL])
    second = replace(
        first, repo=clone.root, steps=MORE, run_id="kernel-2", branch="tile-agent/fleet-1/kernel"
    )
    assert tried(second.finish()) == ["faster (n=0)", "worse (n=0)"]
    assert clone.changes() == {}

    unbundled(home, bundled(clone, second.run_id, second.branch, home.head() or ""))
    third = replace(first, steps=MORE, run_id="kernel-3", branch="tile-agent/kernel-3")
    assert tried(third.finish()) == ["faster (n=0)", "worse (n=0)"], "its journal is not at home"
    shutil.rmtree(third.folder)
    shutil.copytree(second.folder, home.root / "sandbox" / "fleet" / "fleet-1" / "kernel")
    fourth = replace(third, run_id="kernel-4", branch="tile-agent/kernel-4")
    assert tried(fourth.finish()) == ["faster (n=0)"]
