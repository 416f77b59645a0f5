"""A line where a run is silent for long."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from agent.cli.still import (
    Still,
    comparing_with_itself,
    opened_aloud,
    recording_launches,
    waiting_for,
)
from agent.measuring.pair_cost import PairTime
from agent.options import Request
from agent.report.view import Moment, in_a_line
from agent.state import Run
from agent.transitions import advance
from tests.support.history import BASELINED, STARTED
from tests.support.repo import isolate, make_repo

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_line_comes_where_nothing_else_was_shown() -> None:
    still, told = Still(silent_s=0.2), []
    with still.telling(lambda: told.append(time.monotonic())):
        for _ in range(8):
            time.sleep(0.05)
            still.shown()
        assert told == []
        silent_since = time.monotonic()
        time.sleep(0.7)
    assert len(told) >= 2
    assert told[0] - silent_since > 0.1
    count = len(told)
    time.sleep(0.3)
    assert len(told) == count


def test_a_line_that_cannot_be_shown_ends_nothing() -> None:
    still, told = Still(silent_s=0.05), []

    def tell() -> None:
        told.append(1)
        raise OSError("a closed pipe")

    with still.telling(tell):
        time.sleep(0.5)
    assert len(told) >= 2


def test_the_line_says_where_the_run_is() -> None:
    run = advance(Run(), STARTED)
    line = in_a_line(run, Moment(83.0, "12 done, now tests/test_x.py::test_y[3]"))
    assert line == (
        "baseline: the tests on the code as it is, 1 min 23 s: 12 done, now "
        "tests/test_x.py::test_y[3]"
    )
    assert "compared with itself" in in_a_line(advance(run, BASELINED), Moment(5.0))


def test_who_waits_for_what_tests_launch_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with recording_launches(["a.py::test_a", "a.py::test_b", "b.py"], 600.0, silent_s=0.05):
        time.sleep(0.3)
    said = capsys.readouterr().err
    named = "a.py::test_a, a.py::test_b, 1 more"
    assert (
        f"still running {named} to see what is launched, 0 s; after half of 600 s what was" in said
    )


def test_who_waits_for_imports_or_a_comparison_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setattr("agent.cli.still.SOON_S", 0.05)
    slow = "import time\n\ntime.sleep(1)\nfrom softmax import softmax\n\n\n"
    text = (EXAMPLES / "triton_softmax" / "softmax.py").read_text()
    test = "def test_softmax_triton():\n    assert softmax\n"
    repo = make_repo(tmp_path, {"softmax.py": text, "test_softmax.py": f"{slow}{test}"})
    with opened_aloud(Request(repo / "softmax.py"), ("correctness",)) as session:
        assert session.plan.correctness
    assert "still      importing what the tests import, " in capsys.readouterr().err
    with comparing_with_itself() as after_first:
        after_first(PairTime(1.0, {"test": 2.0}, 4.0, 1))
        time.sleep(0.7)
    told = capsys.readouterr().err
    assert "a pair of processes takes about 7 s; 5 to 8 are compared" in told
    assert "still      comparing the code with itself, " in told


def test_who_waits_for_a_command_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting_for("translating", silent_s=0.1):
        time.sleep(0.5)
    told = capsys.readouterr().err.splitlines()
    assert len(told) >= 2
    assert told[0] == "still translating: 0 s until now"
