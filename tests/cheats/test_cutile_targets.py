"""The cuTile targets and their honest edits are right, as far as a CPU can tell."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cheats.arena import target_of
from tests.cheats.edits import TARGETS, Edit, honest
from tests.support.warm_python import warm_interpreter

pytest.importorskip("cuda.tile", reason="the cuda-tile package is not installed")

OURS = [target for target in TARGETS if target.startswith("cutile_")]
EDITS = [edit for edit in honest() if edit.target in OURS]


def passes(folder: Path) -> bool:
    """Whether the correctness tests of a target pass, and its perf test alone is skipped."""
    command = ["pytest", str(folder), f"--rootdir={folder}", "--tile-cpu", "-q"]
    done = subprocess.run(
        [warm_interpreter(), "-m", *command, "-p", "no:cacheprovider"],
        cwd=folder,
        env={**os.environ, "TRITON_INTERPRET": "0", "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode == 0 and "3 passed, 1 skipped" in done.stdout


@pytest.mark.full
@pytest.mark.parametrize("target", OURS)
def test_a_target_is_right(target: str, tmp_path: Path) -> None:
    shutil.copytree(target_of(target), tmp_path / target)
    assert passes(tmp_path / target)


@pytest.mark.full
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.path.stem)
def test_an_honest_edit_is_right(edit: Edit, tmp_path: Path) -> None:
    shutil.copytree(target_of(edit.target), tmp_path / edit.target)
    (tmp_path / edit.target / f"{edit.target}.py").write_text(edit.text)
    assert passes(tmp_path / edit.target)
