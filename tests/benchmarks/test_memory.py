"""Two runs on a kernel, and what the second one repeated."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agent.journal import read
from agent.options import Options
from agent.report.document import KernelTexts
from agent.repository import Repository
from benchmarks.memory import compared, table, twice
from tests.support.project import COUNTED
from tests.support.repo import isolate, make_repo, write
from tests.support.scripted import KERNEL, ScriptedRun, Step, kernel
from tests.support.warm_python import warm_interpreter

ENDLESS = Options(patience=100, keep_going=True)
STEPS = (
    Step("slower", (kernel(1.2),)),
    Step("sweep", (kernel(0.9), kernel(0.8))),
    Step("wrong", (kernel(0.7, "WRONG"),)),
)


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


@pytest.mark.parametrize(("retry", "again"), [(False, 0), (True, 3)])
def test_what_failed_and_was_tried_again_is_counted(
    tmp_path: Path, retry: bool, again: int
) -> None:
    repo = make_repo(tmp_path, {KERNEL: kernel(1.0)})
    first = ScriptedRun(repo, STEPS, ENDLESS)
    first.finish()
    options = replace(ENDLESS, retry=retry)
    second = replace(first, run_id="kernel-2", branch="second", options=options)
    second.finish()
    events = [
        [entry.event for entry in read(run.folder / "journal.jsonl")] for run in (first, second)
    ]
    found = compared(events, KernelTexts(Repository.open(repo), KERNEL))
    assert found["tried"] == [4, 1 + again]
    assert found["failed"] == 3
    assert len(found["tried_again"]) == len(found["failed_again"]) == again
    assert found["kept"] == [["sweep (n=1)"]] * 2
    lines = table([found | {"kernel": "k", "seconds": [4.0, 1.0]}]).splitlines()
    assert lines[2] == f"| k | 4, {1 + again} | 3 | {again} | {again} | 4.0 s | 1.0 s | 0.25 |"


@pytest.mark.full
def test_a_kernel_is_run_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(sys, "executable", warm_interpreter())
    write(tmp_path / "double", COUNTED)
    (tmp_path / "out").mkdir()
    options = ["--only", "block-size", "--keep-going"]
    found = twice(tmp_path / "double" / "double.py", tmp_path / "out", options)
    assert found["failed"] > 0
    assert found["tried_again"] == []
    assert found["kept"][0] == found["kept"][1] != []
    assert "calibrate" not in found["phases_s"][1] or found["phases_s"][1]["calibrate"] < 1
