"""The change of a file, as a person and `git apply` read it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path

CONTEXT_LINES = 3
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
"""As git has them: a form feed ends none."""


def unified(before: str, after: str, path: Path) -> str:
    """A unified diff that `git apply` and `patch -p1` take; empty where nothing changed.

    `difflib.unified_diff` takes lines that are frequent in a long file, as `)`, for changed ones.
    """
    name = path.as_posix().lstrip("/")
    hunks = "".join(_hunks(_LINE.findall(before), _LINE.findall(after)))
    return f"--- a/{name}\n+++ b/{name}\n{hunks}" if hunks else ""


def _hunks(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for group in matcher.get_grouped_opcodes(CONTEXT_LINES):
        (_, old_first, _, new_first, _), (_, _, old_last, _, new_last) = group[0], group[-1]
        yield f"@@ -{_range(old_first, old_last)} +{_range(new_first, new_last)} @@\n"
        for kind, i, j, k, m in group:
            if kind == "equal":
                yield from (f" {_ended(line)}" for line in old[i:j])
            else:
                yield from (f"-{_ended(line)}" for line in old[i:j])
                yield from (f"+{_ended(line)}" for line in new[k:m])


def _ended(line: str) -> str:
    """A line with its end; a file's last one may have none."""
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _range(first: int, last: int) -> str:
    """Where a hunk begins, counted from 1, and how long it is; an empty one is behind a line."""
    length = last - first
    if length == 1:
        return str(first + 1)
    return f"{first + 1 if length else first},{length}"
