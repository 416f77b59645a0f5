"""The change of a file, as a person and `git apply` read it."""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path


def unified(before: str, after: str, path: Path) -> str:
    """A unified diff that `git apply` and `patch -p1` take."""
    name = path.as_posix().lstrip("/")
    lines = unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    return "".join(lines)
