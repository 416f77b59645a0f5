"""Commands that messages suggest can be pasted where they are read."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from agent.suggesting import here, looking, or_captured, or_captured_in_run, passing
from tests.support.repo import isolate, make_repo, write

KERNEL, TEST = "kernels/softmax.py", "tests/test_softmax.py"


@pytest.fixture
def repo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    isolate(monkeypatch, tmp_path)
    return make_repo(tmp_path)


@pytest.mark.parametrize(
    ("folder", "kernel", "test"),
    [
        (".", KERNEL, TEST),
        ("kernels", "softmax.py", f"../{TEST}"),
        ("kernels/deep", "../softmax.py", f"../../{TEST}"),
        ("..", KERNEL, TEST),  # from elsewhere they stay as the repository has them
    ],
)
def test_paths_are_those_of_the_current_directory(
    repo: Path, monkeypatch: pytest.MonkeyPatch, folder: str, kernel: str, test: str
) -> None:
    write(repo, {TEST: "", "kernels/deep/other.py": ""})
    monkeypatch.chdir(repo / folder)
    said = or_captured(KERNEL, TEST)
    assert f"tile-agent capture --kernel {kernel} -- python SCRIPT" in said
    assert f"tile-agent run --kernel {kernel} --capture 'python -m pytest {test}'" in said
    assert f"tile-agent run --kernel {kernel} --capture 'python SCRIPT'" in or_captured_in_run(
        KERNEL
    )


def test_what_is_not_there_is_left_as_it_is(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repo / "kernels")
    assert here("no/such.py") == "no/such.py"
    assert here("") == ""
    assert "-- python use.py" in or_captured(KERNEL, script="use.py")


def test_a_command_runs_by_the_interpreter_that_was_given() -> None:
    """In that of tile-agent the project's own packages may be missing."""
    assert passing(("X",), sys.executable) == " --pass-env X"
    assert looking("explain", KERNEL, (), "/v/bin/python").endswith(" --python /v/bin/python`")
    said = or_captured(KERNEL, TEST, python="/v e/python")
    assert "--python '/v e/python' -- '/v e/python' SCRIPT" in said
    (command,) = (words for words in said.split(", or ") if "--capture" in words)
    given = shlex.split(command.partition("tile-agent ")[2])
    assert shlex.split(given[-1])[:3] == ["/v e/python", "-m", "pytest"]
    assert "--capture '/v/python SCRIPT'" in or_captured_in_run(KERNEL, (), "/v/python")
