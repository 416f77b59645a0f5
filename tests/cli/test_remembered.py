"""Two runs on one kernel, in the interpreter: what failed once is not run twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import ExitCode
from tests.support.project import COUNTED, tile_agent
from tests.support.repo import isolate, make_repo


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


BEST_AS_IT_IS = """\
    ms = 0.01 * (1 if block_size == 256 else 1.5)
"""
COUNTED_MS = """\
    ms = 0.01 * -(-2048 // block_size) + 1e-5 * block_size
"""


def test_what_failed_is_passed_over(tmp_path: Path) -> None:
    test = COUNTED["tests/test_double.py"]
    assert COUNTED_MS in test
    test = test.replace(COUNTED_MS, BEST_AS_IT_IS)
    repo = make_repo(tmp_path, COUNTED | {"tests/test_double.py": test})
    run = ("run", "--kernel", "double.py", "--json", "--branch")

    rows = tile_agent(repo, *run, "first").json["rows"][1:]
    (name,) = (row["optimization"] for row in rows)
    assert name.startswith("block size")

    again = tile_agent(repo, *run, "second")
    assert again.code == ExitCode.NO_IMPROVEMENT, again.err
    assert len(again.json["rows"]) == 1
    assert "as run double-" in again.err, "its calibration was not taken over"
    (why,) = (each["reason"] for each in again.json["skipped"] if "tried before" in each["reason"])
    assert "(run double-" in why
