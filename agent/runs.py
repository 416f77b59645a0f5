"""The runs of a repository, as their folders and journals tell them."""

from __future__ import annotations

import re
import time
from pathlib import Path

from agent.errors import JournalError, TransitionError
from agent.journal import read, replay
from agent.repository import Repository
from agent.state import Run
from agent.workspace import SANDBOX


def runs_folder(repository: Repository) -> Path:
    """Where the runs of a repository are kept."""
    return repository.root / SANDBOX / "runs"


def table_path(repository: Repository) -> Path:
    """The table of the latest run."""
    return repository.root / SANDBOX / "perf_results.md"


def new_run_id(kernel: Path) -> str:
    """Of a run that begins now."""
    return f"{_slug(kernel)}-{time.strftime('%Y%m%d-%H%M%S')}"


def usual_branch(kernel: Path) -> str:
    """Of a run that begins today, where the user names none."""
    return f"tile-agent/{_slug(kernel)}-{time.strftime('%Y%m%d')}"


def _slug(kernel: Path) -> str:
    """The kernel's name in letters that git and every file system take."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", kernel.stem).strip("-") or "kernel"


def find_runs(repository: Repository) -> tuple[str, ...]:
    """The ids of the repository's runs, oldest first."""
    journals = runs_folder(repository).glob("*/journal.jsonl")
    return tuple(p.parent.name for p in sorted(journals, key=lambda p: p.stat().st_mtime))


def read_run(repository: Repository, name: str) -> Run | None:
    """A run as its journal tells it; None where that cannot be read."""
    try:
        entries = read(runs_folder(repository) / name / "journal.jsonl")
        return replay([entry.event for entry in entries])
    except (JournalError, TransitionError):
        return None


def keep_foreign_table(repository: Repository, run_id: str) -> None:
    """Copy a table that no run of ours wrote to where a run of that name does not overwrite it."""
    table = table_path(repository)
    if not table.exists():
        return
    text = table.read_bytes()
    ours = runs_folder(repository).glob("*/perf_results.md")
    if any(path.read_bytes() == text for path in ours):
        return
    kept = runs_folder(repository) / f"before-{run_id}"
    kept.mkdir(parents=True, exist_ok=True)
    (kept / "perf_results.md").write_bytes(text)
