"""A line where a run is silent for long."""

from __future__ import annotations

import time

import pytest

from agent.cli.still import Still, recording_launches
from agent.report.view import Moment, in_a_line
from agent.state import Run
from agent.transitions import advance
from tests.support.history import BASELINED, STARTED


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
    assert f"still running {named} to see what is launched, 0 s; given up after 600 s" in said
