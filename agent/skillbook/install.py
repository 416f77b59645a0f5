"""Installing, upgrading and removing a skill, without touching a file that is not ours.

What was installed is listed with its hashes in a manifest in the skill's folder. A file is ours as
long as it has the hash that the manifest, or the skill that is being installed, gives it: so an
upgrade that was cut off is taken up where it ended.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path, PurePosixPath

from agent import __version__
from agent.errors import UsageError
from agent.skillbook.format import FILE

MANIFEST = ".tile-agent-skill.json"
REPLACED = "skills.replaced"
"""Beside the skills folder: where `force` keeps what it replaces, out of the assistants' sight."""

Hashes = Mapping[str, str]
"""Path below a skill's folder, with slashes -> SHA-256."""


class State(StrEnum):
    """How the place of a skill stands."""

    ABSENT = "absent"
    CURRENT = "current"
    OUTDATED = "outdated"
    MODIFIED = "modified"
    """Ours, but for files that somebody else changed or put where a new one of ours belongs."""
    FOREIGN = "foreign"
    """Not ours: no manifest, or not a folder of its own."""


@dataclass(frozen=True)
class Standing:
    """What is at the place of a skill, and why it may not be touched if so."""

    folder: Path
    state: State
    installed: Hashes
    """What the manifest lists."""
    reason: str = ""

    @property
    def closed(self) -> bool:
        """Whether only `force` may replace it."""
        return self.state in (State.MODIFIED, State.FOREIGN)


@dataclass(frozen=True)
class Change:
    """What became of the place of a skill."""

    folder: Path
    action: str
    """installed, upgraded, unchanged or removed."""
    kept: Path | None = None
    """Where that lies which was there before, when it was replaced by force."""
    left: tuple[str, ...] = ()
    """Files in the folder that are not ours, and are where they were."""


def standing(home: Path, name: str, source: Path | None = None) -> Standing:
    """How `home / name` stands towards the skill in `source`; without one, towards its manifest."""
    folder = home / name
    if not os.path.lexists(folder):
        return Standing(folder, State.ABSENT, {})
    if folder.is_symlink():
        return Standing(folder, State.FOREIGN, {}, f"it is a link to {folder.readlink()}")
    if not folder.is_dir():
        return Standing(folder, State.FOREIGN, {}, "it is a file")
    installed = _manifest(folder)
    if installed is None:
        return Standing(folder, State.FOREIGN, {}, "tile-agent did not install it")
    new = _hashes(source) if source else {}
    paths = installed.keys() | new.keys()
    present = {path: found for path in paths if (found := _hash(folder, path)) is not None}
    changed = sorted(p for p, h in present.items() if h not in (installed.get(p), new.get(p)))
    if changed:
        verb = "was" if len(changed) == 1 else "were"
        reason = f"{', '.join(changed)} {verb} changed there"
        return Standing(folder, State.MODIFIED, installed, reason)
    same = installed == new and present == new
    return Standing(folder, State.CURRENT if same else State.OUTDATED, installed)


def install(source: Path, home: Path, *, force: bool = False) -> Change:
    """Make `home` hold the skill in `source` as it is.

    Raises:
        UsageError: something of the user's is in the way and `force` is not given, or the folder
            cannot be written.
    """
    found = standing(home, source.name, source)
    if found.state is State.CURRENT:
        return Change(found.folder, "unchanged", left=_left(found))
    if found.closed and not force:
        raise UsageError(refusal(found))
    with _using(found.folder):
        if found.state is State.OUTDATED:
            _upgrade(source, found)
            return Change(found.folder, "upgraded", left=_left(standing(home, source.name, source)))
        return Change(found.folder, "installed", _copy(source, home, replace=found.closed))


def remove(home: Path, name: str, *, force: bool = False) -> Change:
    """Take a skill out of `home`: what was installed, and nothing else.

    Raises:
        UsageError: a file was changed since, and `force` is not given; or it is none of ours.
    """
    found = standing(home, name)
    if found.state is State.ABSENT or found.state is State.FOREIGN:
        raise UsageError(f"{found.folder}: {found.reason or 'nothing is there'}; nothing removed")
    if found.closed and not force:
        raise UsageError(refusal(found))
    with _using(found.folder):
        if found.closed:
            return Change(found.folder, "removed", _set_aside(found.folder))
        _delete(found.folder, (*found.installed, MANIFEST))
        left = _files(found.folder) if found.folder.exists() else ()
        for directory in (home, home.parent):  # `.claude/skills`: nothing says who made them
            if not directory.is_symlink() and not any(directory.iterdir()):
                directory.rmdir()
        return Change(found.folder, "removed", left=left)


def installed_in(home: Path) -> tuple[str, ...]:
    """The names of the skills in a folder that tile-agent installed, of any version."""
    if not home.is_dir():
        return ()
    inside = (path for path in sorted(home.iterdir()) if not path.is_symlink())
    return tuple(path.name for path in inside if (path / MANIFEST).is_file())


def refusal(found: Standing) -> str:
    """Why the place is left alone, and how to go on, in one line."""
    return (
        f"{found.folder}: {found.reason}; it is left alone. --force takes its place and keeps "
        f"what is there in {found.folder.parent.parent / REPLACED}"
    )


def _hashes(folder: Path) -> dict[str, str]:
    return {path: _hash(folder, path) or "" for path in _files(folder)}


def _files(folder: Path) -> tuple[str, ...]:
    """What lies below a folder, directories and our manifest left out."""
    paths = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    names = (path.relative_to(folder).as_posix() for path in paths)
    return tuple(sorted(name for name in names if name != MANIFEST))


def _left(found: Standing) -> tuple[str, ...]:
    return tuple(sorted(set(_files(found.folder)) - set(found.installed)))


def _hash(folder: Path, path: str) -> str | None:
    """SHA-256 of a file; None where nothing is.

    It is empty where the path is a link or a directory, or leads through a link or a file: what
    is written there would go somewhere else.
    """
    parents = [folder / parent for parent in PurePosixPath(path).parents][:-1]
    if any(p.is_symlink() or (p.exists() and not p.is_dir()) for p in parents):
        return ""
    file = folder / path
    if not os.path.lexists(file):
        return None
    return "" if file.is_symlink() or not file.is_file() else sha256(file.read_bytes()).hexdigest()


def _manifest(folder: Path) -> dict[str, str] | None:
    """The files that were installed; None where no manifest can be read."""
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        paths = {str(path): str(found) for path, found in files.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    # A path that leads out of the folder is not one of ours.
    safe = all(not PurePosixPath(p).is_absolute() and ".." not in PurePosixPath(p).parts
               for p in paths)  # fmt: skip
    return paths if safe else None


def _write_manifest(folder: Path, files: Hashes) -> None:
    value = {"version": __version__, "files": dict(sorted(files.items()))}
    _write(folder / MANIFEST, (json.dumps(value, indent=2) + "\n").encode())


def _write(path: Path, content: bytes) -> None:
    """Replace a file at once, so that nobody ever reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _copy(source: Path, home: Path, *, replace: bool) -> Path | None:
    """Put a skill in its place: all of it, or nothing. Gives where that is which was there."""
    home.mkdir(parents=True, exist_ok=True)
    draft = home / f".{source.name}.{os.getpid()}"
    try:
        for path in _files(source):
            _write(draft / path, (source / path).read_bytes())
        _write_manifest(draft, _hashes(source))
        kept = _set_aside(home / source.name) if replace else None
        draft.rename(home / source.name)
        return kept
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _upgrade(source: Path, found: Standing) -> None:
    new = _hashes(source)
    # SKILL.md leads to the others, so it comes last.
    for path in sorted(new, key=lambda p: p == FILE):
        if new[path] != found.installed.get(path) or not (found.folder / path).exists():
            _write(found.folder / path, (source / path).read_bytes())
    _delete(found.folder, tuple(found.installed.keys() - new.keys()))
    _write_manifest(found.folder, new)


def _delete(folder: Path, paths: tuple[str, ...]) -> None:
    """Delete files, and the directories that held nothing else."""
    for path in paths:
        (folder / path).unlink(missing_ok=True)
    held = {folder / parent for path in paths for parent in PurePosixPath(path).parents}
    for directory in sorted(held, reverse=True):
        if directory.is_dir() and not any(directory.iterdir()):
            directory.rmdir()


def _set_aside(folder: Path) -> Path:
    """Move what is there, link or folder, to where no assistant looks for skills."""
    shelf = folder.parent.parent / REPLACED
    shelf.mkdir(exist_ok=True)
    number = 1
    while os.path.lexists(kept := shelf / f"{folder.name}-{number}"):
        number += 1
    return folder.rename(kept)


@contextmanager
def _using(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise UsageError(
            f"{folder}: cannot use {problem.filename or folder}: {problem.strerror}; mend that, "
            "or name another folder with --to"
        ) from None
