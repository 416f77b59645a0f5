"""What was touched while something ran as the user: a worktree's files, and the user's repository.

What runs as the user can write what the user can write. So the files are looked at before and
after, by their stat data: the time of the last change of an inode is the system's, and no program
sets it back. Contents are read only where stat data differ. Nothing here writes.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from agent.repository import Repository, shown

Stat = tuple[int, int, int, int, int]
"""Mode, size, times of the last write and of the last change of the inode in ns, inode."""

_MOST_NAMED = 5
_LARGEST_BYTES = 64 * 2**20
"""No file that is larger is read: with other stat data it counts as changed."""
_BRANCH = re.compile(rb'\s*\[branch "[^"\]\\]*"\]\s*', re.IGNORECASE)
_VALUE = re.compile(rb"\s*[A-Za-z0-9-]+ = [^\\]*")
_CONFIGURES = {"pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml"}
_IS_IMPORTED = {".py", ".pyc", ".so", ".pth"}


@dataclass(frozen=True)
class FileChange:
    """What became of one file."""

    verb: str
    """'added', 'changed' or 'deleted'."""
    path: str
    is_link: bool = False

    def __str__(self) -> str:
        return f"{self.verb} {shown(self.path)}"

    @property
    def alters_what_runs(self) -> bool:
        """Whether what judges may load it: any file but a new one that is only data."""
        name = Path(self.path)
        loaded = name.suffix in _IS_IMPORTED or name.name in _CONFIGURES
        return self.verb != "added" or loaded or self.is_link


# --- files --------------------------------------------------------------------------------------


def stats_of(root: Path, leave_out: Callable[[os.DirEntry[str]], bool]) -> dict[str, Stat]:
    """Path below `root` -> stat data of whatever is no folder; links are not followed."""
    found: dict[str, Stat] = {}
    start = len(str(root)) + 1
    folders = [str(root)]
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except OSError:
            continue  # removed meanwhile, or closed to us
        for entry in entries:
            if leave_out(entry):
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif (seen := _stat(entry)) is not None:
                found[entry.path[start:]] = seen
    return found


def _stat(path: os.DirEntry[str] | Path) -> Stat | None:
    try:
        info = path.stat(follow_symlinks=False)
    except OSError:
        return None
    return info.st_mode, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino


def changes_of(
    root: Path,
    before: Mapping[str, Stat],
    after: Mapping[str, Stat],
    blobs: Callable[[], Mapping[str, str]],
) -> list[FileChange]:
    """What differs, in order. A file that holds the blob which it held is no change.

    Args:
        root: where the files lie.
        before: their stat data then.
        after: their stat data now.
        blobs: path -> git's name for the content then; called where stat data differ.
    """
    found = []
    for path in sorted(before.keys() | after.keys()):
        then, now = before.get(path), after.get(path)
        if then is None and now is not None:
            found.append(FileChange("added", path, stat.S_ISLNK(now[0])))
        elif now is None:
            found.append(FileChange("deleted", path))
        elif then is not None and then != now:
            blob = blobs().get(path)
            same = then[0] == now[0] and blob is not None and blob == _blob(root / path, blob)
            if not same:
                found.append(FileChange("changed", path))
    return found


def _blob(path: Path, like: str) -> str | None:
    """Git's name for what a file holds, in the hash of another name; None for what has none."""
    try:
        info = path.lstat()
        if stat.S_ISLNK(info.st_mode):
            data = os.fsencode(path.readlink())
        elif stat.S_ISREG(info.st_mode) and info.st_size <= _LARGEST_BYTES:
            data = path.read_bytes()
        else:
            return None
    except OSError:
        return None
    new = hashlib.sha1 if len(like) == 40 else hashlib.sha256
    return new(b"blob %d\0" % len(data) + data).hexdigest()


def named(phrases: Sequence[object]) -> str:
    """The first few in one line, and how many more there are."""
    return ", ".join(_first(phrases))


def _first(phrases: Sequence[object]) -> list[str]:
    more = len(phrases) - _MOST_NAMED
    first = [str(phrase) for phrase in phrases[:_MOST_NAMED]]
    return first if more <= 0 else [*first, f"{more} more"]


# --- the worktree of a commit -------------------------------------------------------------------


@dataclass(frozen=True)
class Worktree:
    """A worktree as it was when it had just been made equal to its commit."""

    repository: Repository
    root: Path
    sha: str
    stats: Mapping[str, Stat]

    @classmethod
    def look(cls, repository: Repository, root: Path, sha: str) -> Worktree:
        """Take it as it is now."""
        return cls(repository, root, sha, stats_of(root, _nothing))

    def changes(self) -> list[FileChange]:
        """What of it differs by now, but for new files that are only data."""
        found = changes_of(self.root, self.stats, stats_of(self.root, _nothing), self._committed)
        return [change for change in found if change.alters_what_runs]

    def _committed(self) -> Mapping[str, str]:
        return self._blobs

    @cached_property
    def _blobs(self) -> Mapping[str, str]:
        return {path: file.blob for path, file in self.repository.files(self.sha).items()}


def _nothing(_entry: os.DirEntry[str]) -> bool:
    return False


# --- the user's repository ----------------------------------------------------------------------


@dataclass(frozen=True)
class RepositoryState:
    """The user's repository at one moment."""

    files: Mapping[str, Stat]
    blobs: Mapping[str, str]
    """Tracked file -> git's name for its content."""
    git: Mapping[str, object]
    """What git keeps for the user, by a name for people."""


@dataclass(frozen=True)
class Touched:
    """What differs, a phrase each."""

    runs_later: tuple[str, ...] = ()
    """Hooks, configuration, attributes: git runs what they name."""
    others: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Both, in one line's worth."""
        return tuple(_first([*self.runs_later, *self.others]))


class UsersRepository:
    """Looks at the user's checkout, and at what git keeps for it."""

    def __init__(self, repository: Repository, leave_out: Collection[str]) -> None:
        """Take the repository, and the folders at its root that are tile-agent's."""
        self._repository = repository
        self._left_out = {str(repository.root / name) for name in (".git", *leave_out)}
        self._tracked: tuple[object, Mapping[str, str], str] = (None, {}, "")

    def look(self, branch: str) -> RepositoryState:
        """How it stands; `branch` is the run's, which moves.

        Left out are tile-agent's refs, virtual environments and what Python compiled.
        """
        files = stats_of(self._repository.root, self._leaves_out)
        blobs, index = self._index(files)
        return RepositoryState(
            files, blobs, {**self._refs(branch), **self._kept(branch), "the index": index}
        )

    def touched(self, before: RepositoryState, branch: str) -> Touched:
        """What differs from an earlier look."""
        now = self.look(branch)
        root = self._repository.root
        files = map(str, changes_of(root, before.files, now.files, lambda: before.blobs))
        names = sorted(
            name
            for name in before.git.keys() | now.git.keys()
            if before.git.get(name) != now.git.get(name)
        )
        later = tuple(f"changed {name}" for name in names if name.startswith("git's "))
        others = (f"changed {name}" for name in names if not name.startswith("git's "))
        return Touched(later, (*others, *files))

    def _leaves_out(self, entry: os.DirEntry[str]) -> bool:
        if entry.path in self._left_out:
            return True
        if not entry.is_dir(follow_symlinks=False):
            return False
        # A virtual environment has thousands of files, and whoever uses it compiles them.
        own = entry.name in (".git", "__pycache__")
        return own or os.path.lexists(f"{entry.path}/pyvenv.cfg")

    @cached_property
    def _git_dir(self) -> Path:
        return Path(self._repository.git("rev-parse", "--absolute-git-dir").text)

    def _index(self, files: Mapping[str, Stat]) -> tuple[Mapping[str, str], str]:
        """What the tracked files hold, and a digest of what is staged.

        Not of the index's bytes: any `git status` of the user's refreshes those. Git is asked only
        where the index or a file has changed since it was asked last.
        """
        state = (_stat(self._git_dir / "index"), files)
        if self._tracked[0] != state:
            ask, root = self._repository.ask, self._repository.root
            listed = ask("ls-files", "--stage", "-z")
            blobs = {}
            for line in listed.out.split(b"\0")[:-1]:
                facts, _, path = line.partition(b"\t")
                blobs[os.fsdecode(path)] = facts.split(b" ")[1].decode()
            dirty = ask("diff-files", "--name-only", "-z", "--ignore-submodules=all").out
            for name in map(os.fsdecode, dirty.split(b"\0")[:-1]):
                blobs[name] = _blob(root / name, blobs.get(name, "")) or ""
            # What was broken meanwhile differs from what could be read before.
            digest = hashlib.sha256(listed.out).hexdigest() if listed.status == 0 else ""
            self._tracked = (state, blobs, digest)
        return self._tracked[1:]

    def _refs(self, branch: str) -> dict[str, object]:
        """Ref -> commit, without tile-agent's own. Git is asked only where it keeps a table."""
        common = self._repository.common_dir
        found: dict[str, object] = {}
        if (common / "reftable").exists():
            table = self._repository.ask("for-each-ref", "--format=%(objectname) %(refname)").out
        else:
            table = _bytes(common / "packed-refs") or b""
        for line in table.splitlines():
            if not line.startswith((b"#", b"^")):
                sha, _, name = line.partition(b" ")
                found[os.fsdecode(name)] = sha
        ours = str(common / "refs" / "tile-agent")
        for loose in stats_of(common / "refs", lambda entry: entry.path == ours):
            found[f"refs/{loose}"] = (_bytes(common / "refs" / loose) or b"").rstrip()
        return {
            "the stash" if name == "refs/stash" else shown(name): sha
            for name, sha in found.items()
            if not _is_ours(name, branch)
        }

    def _kept(self, branch: str) -> dict[str, object]:
        """HEAD, configuration, hooks, attributes and reflogs."""
        common, own = self._repository.common_dir, self._git_dir
        found: dict[str, object] = {"HEAD": _bytes(own / "HEAD")}
        found["git's configuration"] = _sections(_bytes(common / "config"))
        found["git's configuration of this worktree"] = _bytes(own / "config.worktree")
        found["git's attributes"] = _bytes(common / "info" / "attributes")
        found["info/exclude"] = _bytes(common / "info" / "exclude")
        found["the reflog of HEAD"] = _stat(own / "logs" / "HEAD")
        for name, seen in stats_of(common / "hooks", _nothing).items():
            found[f"git's hook {shown(name)}"] = seen[0], _bytes(common / "hooks" / name)
        logs = common / "logs"
        for name, seen in stats_of(logs / "refs", _nothing).items():
            if not _is_ours(f"refs/{name}", branch):
                found[f"the reflog of refs/{shown(name)}"] = seen
        return found


def _is_ours(ref: str, branch: str) -> bool:
    """Whether a ref is tile-agent's: this run's, or that of another run beside it."""
    return ref == f"refs/heads/{branch}" or ref.startswith(
        ("refs/tile-agent/", "refs/heads/tile-agent/")
    )


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _sections(config: bytes | None) -> bytes | None:
    """A configuration without `[branch "..."]`, which `git push -u` writes: it runs nothing.

    What is written in any other way than git writes it stays: a second section on one line, say.
    """
    if config is None:
        return None
    lines, of_branch = [], False
    for line in config.splitlines():
        if line.lstrip().startswith(b"["):
            of_branch = _BRANCH.fullmatch(line) is not None
        if not of_branch or not (_BRANCH.fullmatch(line) or _VALUE.fullmatch(line)):
            lines.append(line)
    return b"\n".join(lines)
