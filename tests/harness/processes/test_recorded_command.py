"""What is said of a command that fails because a script does not find the project's modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.harness.processes.recorded_command import how_to_import


@pytest.fixture(autouse=True)
def _no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)


def test_a_script_may_need_the_paths_of_the_project(tmp_path: Path) -> None:
    root, inner = tmp_path / "project", tmp_path / "project" / "kernels"
    (root / "benchmarks").mkdir(parents=True)
    for place in (tmp_path, root / "benchmarks"):
        (script := place / "script.py").touch()
        command = ["python", str(script), "--more"]
        told = how_to_import(command, [root, inner, root])
        assert told.endswith(f" finds the project's modules by PYTHONPATH={root}:{inner}")


def test_nothing_is_said_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "script.py").touch()
    at_the_top = ["python", str(tmp_path / "script.py")]
    assert how_to_import(at_the_top, [tmp_path]) == ""
    assert how_to_import(["python", "-m", "pytest"], [tmp_path / "project"]) == ""
    assert how_to_import(["python", "no_such.py"], [tmp_path / "project"]) == ""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert how_to_import(at_the_top, [tmp_path / "project"]) == ""
