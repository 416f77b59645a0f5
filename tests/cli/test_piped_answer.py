"""A run that is not asked about by a person: what its standard input says already."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agent.cli import output
from agent.errors import ExitCode
from tests.support.project import COUNTED, command
from tests.support.repo import changed, isolate, make_repo, snapshot
from tests.support.warm_python import warm_interpreter


@pytest.mark.parametrize(
    "answer", [b"n\n", *(pytest.param(a, marks=pytest.mark.full) for a in (b"No", b" n\ny\n"))]
)
def test_a_piped_no_begins_nothing(
    answer: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch, tmp_path)
    repo = make_repo(tmp_path, COUNTED)
    before = snapshot(repo)
    words = command("run", "--kernel", "double.py", "--python", warm_interpreter())
    done = subprocess.run(words, cwd=repo, input=answer, capture_output=True)
    assert done.returncode == ExitCode.STOPPED
    assert done.stderr.endswith(b"tile-agent: not begun; nothing was changed\n")
    assert changed(before, snapshot(repo)) == set()


@pytest.mark.parametrize("said", ["", "y\nn\n", "no\n"])
@pytest.mark.parametrize("open_end", [True, False])
def test_a_pipe_is_read_without_waiting(
    said: str, open_end: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    os.write(writing, said.encode())
    if not open_end:
        os.close(writing)
    with os.fdopen(reading) as inner:
        monkeypatch.setattr("sys.stdin", inner)
        assert output.answered() == said.partition("\n")[0]
    if open_end:
        os.close(writing)


def test_what_is_no_pipe_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(os.devnull).open() as null:
        for nothing in (null, None):
            monkeypatch.setattr("sys.stdin", nothing)
            assert output.answered() == ""
