"""The loop on a kernel's folder, here a Triton kernel in the interpreter, and what is told."""

from __future__ import annotations

import importlib.metadata
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from agent.events import Calibrated, StopReason
from agent.least_time import LeastTime, LeastTimes
from agent.state import Phase
from benchmarks.loop_run import Limits, run_loop, story
from benchmarks.spec import Spec
from tests.support.history import HISTORY, REACHING
from tests.support.project import KERNEL, TEST
from tests.support.repo import isolate, write
from tests.support.warm_python import warm_interpreter


def installed(distribution: str) -> bool:
    """Whether it is, found out without importing it."""
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


needs_triton = pytest.mark.skipif(not installed("triton"), reason="triton is not installed")


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spec:
    """A kernel that doubles a vector."""
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    folder = tmp_path / "triton" / "double"
    files = {"double.py": KERNEL, "test_double.py": TEST, "pyproject.toml": "[tool.pytest]\n"}
    write(folder, files)
    return Spec("triton", "double", folder)


@needs_triton
@pytest.mark.full
def test_a_run_without_time_for_an_iteration_has_a_baseline(
    spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", warm_interpreter())
    record = run_loop(spec, tmp_path / "work", Limits(budget_s=1, deadline_s=300))
    assert "problem" not in record, record["log"]
    assert [row["optimization"] for row in record["rows"]] == ["baseline"]
    assert record["rows"][0]["latency_ms"] > 0
    assert record["best_source"] == KERNEL
    assert (record["cut"], record["stopped"]) == (
        False,
        StopReason.TIME.value,
    )
    assert record["environment"]["versions"]["triton"]
    assert any("baseline" in line for line in record["log"])


@needs_triton
@pytest.mark.full
def test_a_run_past_its_deadline_is_ended_with_all_its_processes(
    spec: Spec, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    record = run_loop(spec, work, Limits(budget_s=600, deadline_s=4))
    assert record.get("cut") or record["problem"]  # the latter before there is a journal
    alive = [p for p in psutil.process_iter(["cwd"]) if str(work) in (p.info["cwd"] or "")]
    assert not alive


@pytest.mark.full
def test_a_kernel_that_cannot_be_run_says_why(spec: Spec, tmp_path: Path) -> None:
    (spec.folder / "double.py").write_text("def double(x):\n    return 2 * x\n")
    record = run_loop(spec, tmp_path / "work", Limits(budget_s=600, deadline_s=60))
    assert "double.py holds no tile kernel" in record["problem"]


@pytest.mark.full
def test_the_folder_itself_stays_as_it_is(spec: Spec, tmp_path: Path) -> None:
    (spec.folder / "double.py").write_text("def double(x):\n    return 2 * x\n")
    before = sorted(p.name for p in spec.folder.iterdir())
    run_loop(spec, tmp_path / "work", Limits(budget_s=600, deadline_s=60))
    assert sorted(p.name for p in spec.folder.iterdir()) == before


def test_the_story_of_a_run() -> None:
    told = story(list(HISTORY))
    statuses = [(r["iteration"], r["optimization"], r["status"]) for r in told["rows"]]
    assert statuses == [
        (0, "baseline", "keep"),
        (1, "block_size (n=0)", "keep"),
        (2, "occupancy (n=0)", "revert"),
        (3, "reciprocal (n=0)", "revert"),
        (4, "split-k (n=0)", "revert"),
    ]
    effects = [r["effect"] and r["effect"]["improvement"] for r in told["rows"]]
    assert (effects[0], effects[3]) == (None, None)
    assert [*effects[1:3], effects[4]] == pytest.approx([0.1, -0.2, -0.1], abs=1e-5)
    assert told["rows"][3]["reason"] == "test_softmax: assert 1.0 == 2.0"
    assert told["skipped"][0]["optimization"] == "pipelining"
    assert (told["best_sha"], told["faded"]) == ("a2", [1])
    ended_s = [row["ended_s"] for row in told["rows"]]
    assert 0 < ended_s[0] < ended_s[1] < ended_s[-1] <= told["spent_s"]


def test_the_defaults_are_nothing_but_the_kernel() -> None:
    assert Limits(None, 300).options == ()
    assert "--keep-going" in Limits(100, 160).options


def test_the_story_of_a_run_that_was_cut_off() -> None:
    told = story(list(REACHING[Phase.SETTLE]))
    assert [r["optimization"] for r in told["rows"]] == ["baseline"]
    assert (told["final"], told["stopped"]) == (None, None)
    assert story([])["rows"] == []


def test_the_story_says_how_near_the_origin_is_to_its_roof() -> None:
    at = next(n for n, event in enumerate(HISTORY) if isinstance(event, Calibrated))
    calibrated = HISTORY[at]
    assert isinstance(calibrated, Calibrated)
    ((config, level_ms),) = calibrated.calibration.levels_ms.items()
    least = LeastTimes((LeastTime(config, level_ms / 4, 0.0, 2**30),), 4000.0, measured=True)
    told = story([*HISTORY[:at], replace(calibrated, least_times=least), *HISTORY[at + 1 :]])
    assert told["origin_shares"] == {config: pytest.approx(0.25)}
    assert story(list(HISTORY))["origin_shares"] == {}
