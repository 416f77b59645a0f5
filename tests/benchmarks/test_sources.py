"""What the documents claim, measured: every case as far as it goes without a GPU."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.environment import probe

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

from benchmarks import sources
from benchmarks.source_cases import CASES, Case
from tests.support.tiers import others_full
from tests.support.warm_python import warm_interpreter

needs_compiler = pytest.mark.skipif(probe().tileiras is None, reason="tileiras is not installed")
HISTOGRAM = CASES[-1]


@needs_compiler
@pytest.mark.parametrize("case", others_full([*reversed(CASES)]), ids=lambda case: case.name)
def test_every_arm_is_right_on_the_cpu_and_compiles(
    case: Case,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", warm_interpreter())
    assert sources.check(case, tmp_path), capsys.readouterr().out


@pytest.mark.parametrize("case", others_full(CASES), ids=lambda case: case.name)
def test_the_arms_differ(case: Case, tmp_path: Path) -> None:
    """By their text, or by the config that they take."""
    arms = sources.written(case, tmp_path)
    assert len(arms) > 1
    assert len({arm.label for arm, _ in arms}) == len(arms)
    assert all(file.read_text() == arm.text for arm, file in arms)


def test_a_wrong_arm_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", warm_interpreter())
    wrong = replace(HISTOGRAM, expected=lambda bins: bins.bincount(minlength=1024) + 9)
    assert not sources.check(wrong, tmp_path)
    assert "relaxed-histogram: ValueError: its result is off by " in capsys.readouterr().out


def test_a_case_that_fails_or_takes_too_long_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise ValueError("no such input")

    found = sources.measured(replace(HISTOGRAM, inputs=fails), tmp_path, 3)
    assert found["why"] == "RuntimeError: ValueError: no such input"
    assert found["arms"] == []
    monkeypatch.setattr(sources, "LIMIT_S", 0.5)
    slow = replace(HISTOGRAM, inputs=lambda *_: time.sleep(60))
    found = sources.measured(slow, tmp_path, 3)
    assert found["why"] == "RuntimeError: not done after 0 s"
    assert found["took_s"] < 30
    assert sources.rows(found)[0].startswith("| relaxed-histogram | 16777216 | RuntimeError: not ")


def test_a_table_of_speedups() -> None:
    """Three processes: 2.0, 2.1 and 1.9 times as fast."""
    runs = [
        {
            "first": "as it is",
            "error": {"as it is": 0.0, "new": 1e-3},
            "blocks": {"new": {"A": [ratio] * 4, "B": [1.0] * 4}},
        }
        for ratio in (2.0, 2.1, 1.9)
    ]
    (arm,) = sources.summary(runs)
    assert arm["speedup"] == pytest.approx(2.0)
    assert 1.5 < arm["low"] < 1.9 < 2.1 < arm["high"] < 2.6
    case = {"case": "c", "sizes": "8", "arms": [arm]}
    table = sources.markdown({"machine": "GPU", "command": "run", "cases": [case]})
    head, _, titles, rule, row = table.splitlines()
    assert head.startswith("GPU. `run`: CUDA events, cold L2")
    assert titles.count("|") == rule.count("|") == row.count("|")
    assert "| c | 8 | new | as it is | 1.0000 | 2.0000 | 2.000 | " in row


def test_without_a_gpu_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SystemExit, match="--check does what can be done without one"):
        sources.machine()
