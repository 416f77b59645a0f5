"""A run's folder out of git's sight: one line in the repository's `info/exclude`, undone exactly.

The user's own .gitignore is not ours to write.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from agent.repository import Repository


def exclude(repository: Repository, folder: str) -> bool:
    """Have git ignore a folder at the root of the checkout; whether that took a line."""
    if repository.ignores(f"{folder}/run"):
        return False
    path = repository.git_path("info/exclude")
    path.parent.mkdir(exist_ok=True)
    with path.open("a+b") as file:
        file.seek(0)
        text = file.read()
        # The file ends as it ended before, with a newline or without one: undoing is exact.
        line = _line(folder)
        file.write(line + b"\n" if text.endswith(b"\n") or not text else b"\n" + line)
    return True


def include(repository: Repository, folder: str) -> None:
    """Take back the line that `exclude` wrote, whatever came after it."""
    path = repository.git_path("info/exclude")
    with suppress(FileNotFoundError):
        lines = path.read_bytes().split(b"\n")
        if _line(folder) in lines:
            last = len(lines) - 1 - lines[::-1].index(_line(folder))
            _replace(path, b"\n".join(lines[:last] + lines[last + 1 :]))
        if path.stat().st_size == 0:
            path.unlink()
    with suppress(OSError):
        path.parent.rmdir()  # where it is empty


def _line(folder: str) -> bytes:
    return f"/{folder}/".encode()


def _replace(path: Path, content: bytes) -> None:
    """Write a file of the user's whole or not at all, through a link and with its mode."""
    path = path.resolve()
    fresh = path.with_name(f"{path.name}.tile-agent")
    fresh.write_bytes(content)
    shutil.copymode(path, fresh)
    fresh.replace(path)
