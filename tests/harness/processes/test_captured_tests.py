"""Captured tests are tried as they will be run."""

from __future__ import annotations

import sys
import venv
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from agent.harness.processes.captured_tests import failing_cases
from agent.harness.processes.recorded_command import interpreter_of
from tests.support.warm_python import warm_interpreter

TEST = """
import elsewhere
import ours
import pytest


@pytest.mark.parametrize("n", [1])
def test_it(n):
    assert elsewhere.PLACE != ours.PLACE
"""


def test_modules_are_those_of_the_project_and_of_the_users_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ours", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.py").write_text(f"PLACE = {name!r}\n")
    (tmp_path / "elsewhere" / "ours.py").write_text("PLACE = 'elsewhere'\n")
    (test := tmp_path / "test_it.py").write_text(TEST)
    roots, python = [tmp_path / "ours"], warm_interpreter()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "elsewhere"))
    assert failing_cases(test, tmp_path, "triton", roots, python=python) == {}
    monkeypatch.delenv("PYTHONPATH")
    assert failing_cases(test, tmp_path, "triton", roots, python=python) != {}


HANDED_ON = """
import os

import pytest

FLAVOUR = os.environ["PROJECT_FLAVOUR"]


@pytest.mark.parametrize("n", [1])
def test_it(n):
    assert FLAVOUR == "sweet"
"""


def test_variables_are_handed_on_as_to_the_workers_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (test := tmp_path / "test_it.py").write_text(HANDED_ON)
    monkeypatch.setenv("PROJECT_FLAVOUR", "sweet")
    tried = partial(failing_cases, test, tmp_path, "triton", python=warm_interpreter())
    assert tried(passed=("PROJECT_FLAVOUR",)) == {}
    assert "PROJECT_FLAVOUR" in str(tried())


def test_what_cannot_be_collected_says_why(tmp_path: Path) -> None:
    (test := tmp_path / "test_it.py").write_text(TEST)
    tried = partial(failing_cases, test, tmp_path, "triton", python=warm_interpreter())
    assert tried() == ("test_it.py:2: ModuleNotFoundError: No module named 'elsewhere'")
    test.write_text("import os\n\nos._exit(3)\n")
    assert "exit code 3" in str(tried())


def test_another_interpreter_needs_pytest_and_nothing_of_ours(tmp_path: Path) -> None:
    """It is the one that a command names, as far as it has pytest."""
    there = tmp_path / "there"
    venv.create(there, symlinks=True)
    python = there / "bin" / "python"
    assert interpreter_of([str(python), "run.py"]) == sys.executable
    (site,) = there.glob("lib/python*/site-packages")
    modules = [file for name in ("pytest", "torch", "triton") if (file := find_spec(name))]
    folders = {str(Path(str(module.origin)).parents[1]) for module in modules}
    (site / "theirs.pth").write_text("\n".join(folders))
    (site / "elsewhere.py").write_text("PLACE = 1\n")
    (site / "ours.py").write_text("PLACE = 2\n")
    (test := tmp_path / "test_it.py").write_text(TEST)
    assert interpreter_of([str(python), "run.py"]) == str(python)
    assert interpreter_of(["pytest", str(test)]) == sys.executable
    assert failing_cases(test, tmp_path, "triton", python=str(python)) == {}
    assert failing_cases(test, tmp_path, "triton") != {}
