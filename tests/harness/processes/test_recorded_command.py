"""What is said of a command that fails because a script does not find the project's modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.harness.processes.recorded_command import how_to_import


@pytest.fixture(autouse=True)
def _no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)


def test_a_script_outside_of_the_project_may_need_its_path(tmp_path: Path) -> None:
    (root := tmp_path / "project").mkdir()
    (script := tmp_path / "script.py").touch()
    command = ["python", str(script), "--more"]
    assert how_to_import(command, root).endswith(f" finds its modules by PYTHONPATH={root}")


def test_nothing_is_said_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "script.py").touch()
    inside = ["python", str(tmp_path / "script.py")]
    assert how_to_import(inside, tmp_path) == ""
    assert how_to_import(["python", "-m", "pytest"], tmp_path / "project") == ""
    assert how_to_import(["python", "no_such.py"], tmp_path / "project") == ""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert how_to_import(inside, tmp_path / "project") == ""
