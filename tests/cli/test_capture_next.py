"""`capture` of a cuTile kernel where there is no GPU."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.project import Outcome, tile_agent
from tests.support.repo import isolate, make_repo

pytest.importorskip("cuda.tile", reason="cuTile kernels are captured here")

EXAMPLE = Path(__file__).parents[2] / "examples/cutile_softmax"
PYTHON = sys.executable
PYTEST = (PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider")


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")


@pytest.fixture
def softmax(tmp_path: Path) -> Path:
    files = ("softmax.py", "pyproject.toml", "tests/test_softmax.py")
    texts = {name: (EXAMPLE / name).read_text() for name in files}
    return make_repo(tmp_path, texts)


def capture(repo: Path, kernel: str, *command: str) -> Outcome:
    given = ("capture", "--kernel", kernel, "--", *command)
    return tile_agent(repo, *given, env=dict(os.environ))


def test_cutile_tests_on_the_cpu_become_tests_that_are_tried_there(softmax: Path) -> None:
    tests = ("tests/test_softmax.py", "-k", "test_softmax_cutile and float32")
    done = capture(softmax, "softmax.py", *PYTEST, "--tile-cpu", *tests)
    assert done.code == 0, done.err
    text = (softmax / "tests/test_softmax_captured.py").read_text()
    assert "wall time on the CPU" in text and "4x128-float32" in text
    assert "note:" not in done.out
