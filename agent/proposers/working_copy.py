"""A throw-away copy of a commit for a program to work in, and what became of its files."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.proposers.answer import MOST_BYTES, Unusable
from agent.repository import Repository, shown

TASK = "TILE_AGENT_TASK.md"
"""The prompt, in the copy and unknown to its git: many programs read no file outside of it."""
_MOST_NAMED = 5

_Print = tuple[int, bytes]
"""Size and digest of a file; of a link, what it points to."""


@dataclass(frozen=True)
class WorkingCopy:
    """The files of a commit in a git repository of their own."""

    root: Path
    kernel: str
    _prints: dict[str, _Print]

    @classmethod
    def make(
        cls, repository: Repository, sha: str, kernel: str, prompt: str, root: Path
    ) -> WorkingCopy:
        """Export the commit into `root`, which does not exist yet, and put the prompt there."""
        repository.export(sha, root)
        # As the commit has it: a checkout may have other line endings.
        (root / kernel).write_bytes(repository.read(sha, kernel))
        exclude = root / ".git" / "info" / "exclude"
        exclude.parent.mkdir(exist_ok=True)
        exclude.write_text(f"/{TASK}\n", encoding="utf-8")
        (root / TASK).write_text(prompt, encoding="utf-8")
        return cls(root, kernel, {name: _print(path) for name, path in _files(root)})

    def text(self) -> str:
        """The kernel file as it is now.

        Raises:
            Unusable: it is no plain text file any more.
        """
        path = self.root / self.kernel
        try:
            if path.resolve(strict=True) != path or not path.is_file():
                raise Unusable(f"{shown(self.kernel)} is not a plain file any more")
            with path.open("rb") as file:
                data = file.read(MOST_BYTES + 1)
        except FileNotFoundError:
            raise Unusable(f"{shown(self.kernel)} is gone") from None
        except (OSError, RuntimeError):  # the latter: links in a circle
            raise Unusable(f"{shown(self.kernel)} cannot be read any more") from None
        if len(data) > MOST_BYTES:
            raise Unusable(f"{shown(self.kernel)} has more than {MOST_BYTES} bytes")
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise Unusable(f"{shown(self.kernel)} is not UTF-8 any more") from None

    def other_changes(self) -> list[str]:
        """What happened to the other files, a phrase each.

        Told by the files alone. Git would run what the program may have put into the copy's
        configuration.
        """
        left = dict(self._prints)
        found = []
        for name, path in _files(self.root):
            before = left.pop(name, None)
            if name == self.kernel:
                continue
            if before is None:
                if not any(part == "__pycache__" or part[0] == "." for part in Path(name).parts):
                    found.append(f"added {shown(name)}")
            elif _size(path) != before[0] or _print(path) != before:
                found.append(f"changed {shown(name)}")
        left.pop(self.kernel, None)
        found += [f"deleted {shown(name)}" for name in left]
        more = len(found) - _MOST_NAMED
        return found if more <= 0 else [*found[:_MOST_NAMED], f"{more} more"]


def _files(root: Path) -> Iterator[tuple[str, Path]]:
    """Every file and link, in order, but for git's own and the prompt."""
    for folder, folders, names in os.walk(root):
        top = Path(folder)
        if top == root:
            folders[:] = [name for name in folders if name != ".git"]
            names = [name for name in names if name != TASK]
        folders.sort()
        links = [name for name in folders if (top / name).is_symlink()]
        for name in sorted([*names, *links]):
            yield str((top / name).relative_to(root)), top / name


def _print(path: Path) -> _Print:
    try:
        info = path.lstat()
        if stat.S_ISLNK(info.st_mode):
            return info.st_size, os.fsencode(path.readlink())
        if stat.S_ISREG(info.st_mode):
            with path.open("rb") as file:
                return info.st_size, hashlib.file_digest(file, "blake2b").digest()
    except OSError:
        pass
    return -1, b""  # a pipe, a socket, or closed to us: none of them was in the commit


def _size(path: Path) -> int:
    """Looked at first: a file may have become too large to read."""
    try:
        return path.lstat().st_size
    except OSError:
        return -1
