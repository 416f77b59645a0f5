"""The benchmark's command, as far as it gets without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from agent.environment import probe
from benchmarks.loop_run import environment
from benchmarks.playbook import Results
from benchmarks.spec import find
from benchmarks.tables import report
from tests.benchmarks.test_tables import record, results, timing
from tests.support.repo import isolate
from tests.support.warm_python import warm_interpreter

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def playbook(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the benchmark."""
    return subprocess.run(
        [warm_interpreter(), "-m", "benchmarks.playbook", str(out), *arguments],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.full
@pytest.mark.skipif(probe().gpu is not None, reason="there is a GPU")
def test_a_kernel_that_cannot_run_is_written_down_and_the_next_one_tried(tmp_path: Path) -> None:
    done = playbook(tmp_path / "out", "cutile/softmax", "cutile/rope")
    assert done.returncode == 1
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert set(found["kernels"]) == {"cutile/softmax", "cutile/rope"}
    problem = found["kernels"]["cutile/rope"]["problem"]
    assert "cuTile runs on an NVIDIA GPU only" in problem
    assert (tmp_path / "out" / "results.md").read_text() == report(found)
    assert f"cutile/rope: {problem}" in done.stdout


@pytest.mark.full
def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    known = results(softmax=record(timing(origin=0.4, best=0.1), best_source="x = 1\n"))
    (tmp_path / "results.json").write_text(json.dumps(known))
    done = playbook(tmp_path, "cutile/softmax")
    assert done.returncode == 0, done.stderr
    assert "origin 0.4000, best 0.1000" in done.stdout
    assert json.loads((tmp_path / "results.json").read_text()) == known


def test_commands_at_the_same_time_share_what_they_find(tmp_path: Path) -> None:
    softmax, rope = find(["cutile/softmax", "cutile/rope"])
    one, two = Results(tmp_path, "cutile/softmax"), Results(tmp_path, "cutile/rope")
    one.put(softmax, record(timing(origin=0.4, best=0.1)))
    two.put(rope, record(timing(origin=0.3, best=0.2)))
    found = json.loads((tmp_path / "results.json").read_text())
    assert set(found["kernels"]) == {"cutile/softmax", "cutile/rope"}
    assert len(found["commands"]) == 2
    assert two.is_done(softmax) and not one.is_done(rope)


@pytest.mark.full
def test_nothing_is_begun_without_time(tmp_path: Path) -> None:
    done = playbook(tmp_path, "--limit-s", "5", "--again")
    assert done.returncode == 1
    assert done.stdout.count("no time left") == len(list(ROOT.glob("benchmarks/*/*/reference.py")))
    assert not (tmp_path / "results.json").exists()


def test_a_kernel_that_there_is_not(tmp_path: Path) -> None:
    done = playbook(tmp_path, "softmin")
    assert done.returncode == 2
    assert "no kernel softmin; there are: cutile/attention" in done.stderr


def test_this_checkout_is_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    assert environment()["PYTHONPATH"] == f"{ROOT}{os.pathsep}/elsewhere"
