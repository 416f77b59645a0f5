"""A repository with a run that met every verdict: made once, and copied for each test.

The run starts 400 processes of git, the copy one.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from tests.support.repo import git, make_repo
from tests.support.scenario import ORIGIN, STEPS
from tests.support.scripted import KERNEL, ScriptedRun


def repo_with_run(folder: Path) -> Path:
    """A copy of it in a folder, as `make_repo` makes one there; the run is `kernel-1`."""
    repo = folder / "repo"
    shutil.copytree(_made(), repo, symlinks=True)
    git(repo, "update-index", "-q", "--refresh")  # its files are others than git has looked at
    return repo


@cache
def _made() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="tile-agent-run-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    repo = make_repo(folder, {KERNEL: ORIGIN})
    ScriptedRun(repo, STEPS).finish()
    return repo
