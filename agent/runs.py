"""The runs of a repository, as their folders and journals tell them."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from agent.errors import JournalError, TransitionError, UsageError, did_you_mean
from agent.journal import JournalLine, beginning, read, replay
from agent.options import ASSISTANT, Request
from agent.repository import Repository, shown
from agent.state import Phase, Run
from agent.workspace import SANDBOX, Workspace

_ACTIVITY = "activity"


def runs_folder(repository: Repository) -> Path:
    """Where the runs of a repository are kept."""
    return repository.root / SANDBOX / "runs"


def table_path(repository: Repository) -> Path:
    """The table of the latest run."""
    return repository.root / SANDBOX / "perf_results.md"


def new_run_id(repository: Repository, kernel: Path) -> str:
    """Of a run that begins now; a number tells it from one that began in the same second."""
    now = f"{slug(kernel)}-{time.strftime('%Y%m%d-%H%M%S')}"
    ids = itertools.chain([now], (f"{now}-{number}" for number in itertools.count(2)))
    return next(each for each in ids if not (runs_folder(repository) / each).exists())


def usual_branch(kernel: Path) -> str:
    """Of a run that begins today, where the user names none."""
    return f"tile-agent/{slug(kernel)}-{time.strftime('%Y%m%d')}"


def branch_of(workspace: Workspace, request: Request, kernel: str) -> str:
    """The branch that a run is to make.

    Where the user names none, the first of the day's that is free, or whose run can go on: that
    one is for `check_unfinished`.
    """
    if request.branch is not None:
        return request.branch
    usual = usual_branch(Path(kernel))
    if workspace.is_free(usual):
        return usual
    like = re.compile(rf"{re.escape(usual)}(-\d+)?")
    for _, run in runs_on(workspace.repository, kernel):
        branch = run.started.branch if run.started and run.phase is not Phase.DONE else ""
        if like.fullmatch(branch) and not is_abandoned(workspace.repository, run):
            return branch
    return workspace.free_branch(usual)


def check_unfinished(workspace: Workspace, kernel: str, branch: str) -> None:
    """Refuse a branch whose run on this kernel can go on: that is likelier meant than a new name.

    Raises:
        UsageError: there is such a run; how to go on with it.
    """
    if problem := unfinished(workspace, kernel, branch):
        raise UsageError(problem)


def unfinished(workspace: Workspace, kernel: str, branch: str) -> str:
    """That a branch is that of a run on this kernel which can go on; empty where it is not."""
    if not workspace.has_branch(branch):
        return ""
    for name, run in runs_on(workspace.repository, kernel):
        is_its_own = run.started and run.started.branch == branch
        if run.phase is not Phase.DONE and is_its_own and not taken_by(workspace.repository, run):
            led = ASSISTANT in run.options.proposers
            how = f"`tile-agent {'status' if led else 'resume'} {name}`{' says how' if led else ''}"
            return (
                f"branch {branch} is that of run {name}, which is not done: go on with it ({how}), "
                f"abandon it (`git branch -D {branch}`), or begin another on --branch "
                f"{workspace.free_branch(branch)}"
            )
    return ""


def is_abandoned(repository: Repository, run: Run) -> bool:
    """Whether a run that is not done has lost its branch, which is there when it begins."""
    if run.started is None or run.phase is Phase.DONE:
        return False
    return has_lost_branch(repository, run)


def has_lost_branch(repository: Repository, run: Run) -> bool:
    """Whether the branch of a run was deleted, whoever has one of that name now."""
    started = run.started
    if started is None:
        return False
    is_there = Workspace(repository, started.run_id).has_branch(started.branch)
    return not is_there or bool(taken_by(repository, run))


def taken_by(repository: Repository, run: Run) -> str:
    """The latest run that made a branch of the same name since: a run makes one that is not there,
    so that this one's was gone. Empty where none did."""
    assert run.started is not None
    later = ""
    for other in filter(None, map(beginning, journals(repository))):
        same = other.branch == run.started.branch
        later = other.run_id if same and other.began_at_s > run.started.began_at_s else later
    return later


def slug(kernel: Path) -> str:
    """The kernel's name in letters that git and every file system take."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", kernel.stem).strip("-") or "kernel"


def find_runs(repository: Repository) -> tuple[str, ...]:
    """The ids of the repository's runs, oldest first."""
    journals = runs_folder(repository).glob("*/journal.jsonl")
    return tuple(p.parent.name for p in sorted(journals, key=lambda p: p.stat().st_mtime))


def journals(repository: Repository) -> list[Path]:
    """Of the repository's runs, those of fleets among them, oldest first."""
    sandbox = repository.root / SANDBOX
    found = (*sandbox.glob("runs/*/journal.jsonl"), *sandbox.glob("fleet/*/*/journal.jsonl"))
    return sorted(found, key=lambda path: path.stat().st_mtime)


def chosen_run(repository: Repository, name: str | None) -> str:
    """The id of a run that there is; of the latest where none is named.

    Raises:
        UsageError: there is none of that name, or none at all.
    """
    known = find_runs(repository)
    if not known:
        raise UsageError("no runs here yet: tile-agent run --kernel PATH")
    if name is None:
        return known[-1]
    if name not in known:
        mend = did_you_mean(name, known) or f"there are: {', '.join(known)}"
        raise UsageError(f"there is no run {name} here; {mend}")
    return name


def begun(repository: Repository, name: str) -> tuple[JournalLine, ...]:
    """The journal of a run that has at least started.

    Raises:
        UsageError: it has not.
        JournalError: the journal cannot be read.
    """
    lines = read(runs_folder(repository) / name / "journal.jsonl")
    if not lines:
        raise UsageError(f"run {name} had not begun when it ended: there is nothing to report")
    return lines


def kernel_in(path: Path) -> tuple[Repository, str]:
    """The repository of a kernel, and its path from the root; the file may be gone.

    Raises:
        UsageError: it is in no repository, or a link leads out of it.
    """
    real = path.resolve()
    repository = Repository.open(next(each for each in real.parents if each.is_dir()))
    if not real.is_relative_to(repository.root):
        raise UsageError(f"{shown(path)} is outside the repository: name the file itself")
    return repository, real.relative_to(repository.root).as_posix()


def read_run(repository: Repository, name: str) -> Run | None:
    """A run as its journal tells it; None where that cannot be read."""
    try:
        entries = read(runs_folder(repository) / name / "journal.jsonl")
        return replay([entry.event for entry in entries])
    except (JournalError, TransitionError):
        return None


def runs_on(repository: Repository, kernel: str) -> Iterator[tuple[str, Run]]:
    """The runs that began on a kernel and can be read, with their ids, the newest first.

    Args:
        repository: the user's.
        kernel: its path from the root of the repository.
    """
    for name in reversed(find_runs(repository)):
        run = read_run(repository, name)
        if run is not None and run.started is not None and run.started.kernel == kernel:
            yield name, run


def keep_foreign_table(repository: Repository, run_id: str) -> None:
    """Copy a table that no run of ours wrote to where a run of that name does not overwrite it."""
    if not _has_foreign_table(repository):
        return
    copy = _foreign_table_copy(repository, run_id)
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(table_path(repository).read_bytes())


def replaced_table(repository: Repository, run_id: str) -> tuple[str, ...]:
    """What is said before a run where its table takes the place of one that it keeps a copy of."""
    if not _has_foreign_table(repository):
        return ()
    table, copy = (
        path.relative_to(repository.root)
        for path in (table_path(repository), _foreign_table_copy(repository, run_id))
    )
    return (f"{table} is there and of no run: the run's table replaces it, and {copy} keeps it",)


def _has_foreign_table(repository: Repository) -> bool:
    """Whether the table is one that no run of ours wrote, or that a person went on with."""
    table = table_path(repository)
    if not table.exists():
        return False
    text = table.read_bytes()
    ours = runs_folder(repository).glob("*/perf_results.md")
    return not any(path.read_bytes() == text for path in ours)


def _foreign_table_copy(repository: Repository, run_id: str) -> Path:
    return runs_folder(repository) / f"before-{run_id}" / table_path(repository).name


# --- what a run is at, between two events -------------------------------------------------------


def note_activity(folder: Path, run: Run, what: str) -> None:
    """Leave a few words for who watches a run; on a full disk nobody is told.

    Args:
        folder: of the run.
        run: in whose phase it is.
        what: goes on.
    """
    fresh = folder / f".{_ACTIVITY}"
    with suppress(OSError):
        fresh.write_text(f"{_place(run)}\n{what}", encoding="utf-8")
        fresh.replace(folder / _ACTIVITY)


def activity(folder: Path, run: Run) -> str:
    """What a run was last said to be at in its present phase; empty where nothing was."""
    try:
        place, _, what = (folder / _ACTIVITY).read_text(encoding="utf-8").partition("\n")
    except (OSError, UnicodeDecodeError):
        return ""
    return what if place == _place(run) else ""


def _place(run: Run) -> str:
    return f"{run.iteration} {run.phase.value}"
