"""A repository and a run as git bundles: how they travel to a worker, and back."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from agent.errors import JournalError, UsageError
from agent.events import Started
from agent.fleet.jobs import PackedRepository, ResumePoint
from agent.journal import read
from agent.repository import Repository
from agent.runs import journals, runs_folder
from agent.workspace import SANDBOX, Workspace

BRANCHES = "refs/heads/"
_TRIED = "refs/tile-agent/*"
"""The commits of all runs, those of fleets among them."""
_CHECKED_OUT = "main"
"""In a clone; not the user's, for it may be that of a run, which could not move it then."""


def refs_of(run_id: str) -> str:
    """Below what the commits of a run are kept."""
    return f"refs/tile-agent/{run_id}/"


# --- the repository -----------------------------------------------------------------------------


def check_whole(repository: Repository) -> None:
    """Look whether the repository can be handed on.

    Raises:
        UsageError: it holds only a part of its history.
    """
    if repository.git("rev-parse", "--is-shallow-repository").text == "true":
        raise UsageError(
            "the repository is a shallow clone, which cannot be handed on: "
            "`git fetch --unshallow`, and run again"
        )


def packed(repository: Repository, ref: str) -> PackedRepository:
    """The repository at the commit that `ref` keeps, with what runs of it have tried."""
    who = (repository.ask("config", f"user.{key}").text for key in ("name", "email"))
    name, email = who
    return PackedRepository(
        bundle=repository.git("bundle", "create", "--quiet", "-", ref, f"--glob={_TRIED}").out,
        sha=repository.git("rev-parse", f"{ref}^{{commit}}").text,
        ref=ref,
        identity=(name, email),
    )


def unpacked(source: PackedRepository, folder: Path) -> Repository:
    """A clone of the repository with the commit checked out, in an empty folder."""
    repository = Repository(folder, folder / ".git")
    git = repository.git
    git("init", "--quiet", "--template=")
    for key, value in zip(("name", "email"), source.identity, strict=True):
        if value:
            git("config", f"user.{key}", value)
    unbundled(repository, source.bundle)
    git("checkout", "--quiet", "-B", _CHECKED_OUT, source.sha)
    return repository


# --- earlier runs ---------------------------------------------------------------------------------


def past_journals(repository: Repository) -> dict[str, tuple[bytes, ...]]:
    """Kernel -> the journals of the runs on it, oldest first."""
    found: dict[str, tuple[bytes, ...]] = {}
    for path in journals(repository):
        with suppress(JournalError, OSError):
            lines = read(path)
            if lines and isinstance(began := lines[0].event, Started):
                found[began.kernel] = (*found.get(began.kernel, ()), path.read_bytes())
    return found


def remembered(repository: Repository, past: Sequence[bytes]) -> None:
    """Have the runs in a clone know earlier ones, as of another fleet."""
    Workspace(repository, "past").exclude_sandbox()
    for number, journal in enumerate(past):
        folder = repository.root / SANDBOX / "fleet" / "past" / f"{number:04}"
        folder.mkdir(parents=True)
        (folder / "journal.jsonl").write_bytes(journal)


# --- a run ----------------------------------------------------------------------------------------


def bundled(repository: Repository, run_id: str, branch: str, base: str) -> bytes:
    """The refs and the branch of a run, without what the commit `base` holds already."""
    listed = ("for-each-ref", "--format=%(objectname) %(refname)")
    lines = repository.git(*listed, refs_of(run_id), f"{BRANCHES}{branch}").text.splitlines()
    refs = [ref for sha, _, ref in (line.partition(" ") for line in lines) if sha != base]
    if not refs:
        return b""
    return repository.git("bundle", "create", "--quiet", "-", f"^{base}", *refs).out


def unbundled(repository: Repository, bundle: bytes) -> dict[str, str]:
    """Add the objects of a bundle to a repository; no ref changes.

    Returns:
        the refs that the bundle names -> their commits.
    """
    if not bundle:
        return {}
    with tempfile.NamedTemporaryFile(prefix="tile-agent-", suffix=".bundle") as file:
        file.write(bundle)
        file.flush()
        lines = repository.git("bundle", "unbundle", file.name).text.splitlines()
    return {ref: sha for sha, _, ref in (line.partition(" ") for line in lines)}


def point_of(run_id: str, journal: Path, bundle: bytes) -> ResumePoint | None:
    """From what a run can go on; None before it has begun.

    Raises:
        JournalError: the journal is damaged, or not there.
    """
    text = journal.read_bytes()
    lines = read(journal)
    if not lines:
        return None
    whole = text[: text.rfind(b"\n") + 1]
    meaning = getattr(lines[0].event, "latency_meaning", "")
    return ResumePoint(run_id, meaning, whole, bundle)


def restored(repository: Repository, point: ResumePoint, branch: str, base: str) -> None:
    """Put a run into a clone, so that `tile-agent resume` finds it there."""
    found = unbundled(repository, point.bundle)
    origin, head = f"{refs_of(point.run_id)}origin", f"{BRANCHES}{branch}"
    for ref, sha in ({origin: base, head: base} | found).items():
        repository.git("update-ref", ref, sha)
    Workspace(repository, point.run_id).exclude_sandbox()
    folder = runs_folder(repository) / point.run_id
    folder.mkdir(parents=True)
    (folder / "journal.jsonl").write_bytes(point.journal)
