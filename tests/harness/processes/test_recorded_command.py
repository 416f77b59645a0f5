"""Where the Python processes of a recorded command find modules."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agent.harness.processes.recorded_command import LAUNCHES, run_recorded

SCRIPT = """
import sys, shop, numbers
import shop.parts
assert shop.PLACE == sys.argv[1], shop.PLACE
numbers.Number
try:
    import runs
except ImportError:
    runs = None
assert runs is None
"""


def test_a_script_finds_the_projects_modules_after_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a script Python adds its own folder alone; what hides a module of Python's stays away, and
    a folder that is no package."""
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for folder in (project / "benchmarks", elsewhere):
        folder.mkdir(parents=True)
    (project / "benchmarks" / "call.py").write_text(SCRIPT)
    (project / "runs").mkdir()
    for place in (project, elsewhere):
        (place / "shop").mkdir()
        (place / "shop" / "__init__.py").write_text(f"PLACE = {place.name!r}\n")
        (place / "shop" / "parts.py").write_text("")
        (place / "numbers.py").write_text("")
    monkeypatch.delenv("PYTHONPATH", raising=False)

    def code(expected: str, *, also: bool = True) -> int:
        command = [sys.executable, str(project / "benchmarks" / "call.py"), expected]
        places = (project, project / "src") if also else ()
        return run_recorded(command, LAUNCHES, {}, {}, also_on_path=places).code

    assert code("project") == 0
    assert code("project", also=False) != 0
    monkeypatch.setenv("PYTHONPATH", str(elsewhere))
    (elsewhere / "numbers.py").unlink()
    assert code("elsewhere") == 0


def test_the_folder_of_the_kernel_needs_no_package_in_it(tmp_path: Path) -> None:
    """Seen in a repository whose `ops` has no `__init__.py`; another folder is no module still."""
    for folder in ("ops", "wandb", "benchmarks"):
        (tmp_path / folder).mkdir()
    kernel = tmp_path / "ops" / "norm.py"
    kernel.write_text("ANSWER = 42\n")
    script = tmp_path / "benchmarks" / "call.py"
    script.write_text(
        "from ops.norm import ANSWER\n"
        "try:\n    import wandb\n"
        "except ImportError:\n    raise SystemExit(ANSWER) from None\n"
    )
    command = [sys.executable, str(script)]
    asked = {"kernel": str(kernel)}
    assert run_recorded(command, LAUNCHES, asked, {}, also_on_path=(tmp_path,)).code == 42
    assert run_recorded(command, LAUNCHES, {}, {}, also_on_path=(tmp_path,)).code == 1
