"""What is told of tests while they run, and where they are interrupted."""

from __future__ import annotations

import time

import pytest

from agent.cli.done_tests import DoneTests
from agent.errors import Interrupted, UsageError


def wait_for(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What was printed until a line came."""
    seen, until = "", time.monotonic() + 30
    while line not in seen and time.monotonic() < until:
        seen += capsys.readouterr().err
        time.sleep(0.01)
    return seen


def test_only_what_is_new_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with DoneTests(3, every_s=0.02) as done:
        time.sleep(0.1)
        done.begins(0, "t.py::first")
        seen = wait_for("first", capsys)
        time.sleep(0.1)
        done.begins(1, "t.py::second")
        seen += wait_for("second", capsys)
    assert (seen + capsys.readouterr().err).splitlines() == [
        "running 3 tests",
        "0 of 3 tests done, now t.py::first",
        "1 of 3 tests done, now t.py::second",
    ]


def test_what_is_over_soon_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    with DoneTests(1) as done:
        done.begins(0, "t.py::test")
    assert capsys.readouterr().err == "running 1 test\n"


def test_an_interruption_says_what_is_lost() -> None:
    done = DoneTests(3)
    with pytest.raises(Interrupted, match="with 2 of 3 tests done: nothing is kept"), done:
        done.begins(2, "t.py::third")
        raise Interrupted
    with pytest.raises(Interrupted, match=r"^said$"), DoneTests(3):
        raise Interrupted("said")
    with pytest.raises(UsageError, match=r"^else$"), DoneTests(3):
        raise UsageError("else")
