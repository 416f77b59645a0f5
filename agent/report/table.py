"""`perf_results.md`: the five-column table and nothing else.

The layout is the one TileGym's performance skill shows: columns padded to their widest cell,
numbers and the status to the right, text to the left, latency with six decimals. An iteration
that was never timed has `nan` there, which pandas and people both read as 'no number'.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from agent.state import Row

if TYPE_CHECKING:
    from pandas import DataFrame

_TYPES = {
    "iteration": int,
    "optimization": str,
    "latency_ms": float,
    "correctness": str,
    "status": str,
}
"""The columns."""
_RIGHT = (True, False, True, False, True)
"""Which columns are set to the right."""


def frame(rows: Sequence[Row]) -> DataFrame:
    """The table as pandas holds it."""
    from pandas import DataFrame  # takes a third of a second, which `--help` need not wait for

    found = DataFrame(
        {
            "iteration": [row.iteration for row in rows],
            "optimization": [_titled(row) for row in rows],
            "latency_ms": [row.latency_ms for row in rows],
            "correctness": ["PASS" if row.correct else "FAIL" for row in rows],
            "status": [row.status.value for row in rows],
        }
    )
    return found.astype(_TYPES)  # a table without rows has them too


def _titled(row: Row) -> str:
    """What was tried, and in how many attempts where one was mended."""
    title = " ".join(row.optimization.split())
    return f"{title}, {row.attempts} attempts" if row.attempts > 1 else title


def render(rows: Sequence[Row]) -> str:
    """The table as Markdown, ending in one newline."""
    return _rendered(tuple(rows))


@lru_cache(maxsize=1)
def _rendered(rows: tuple[Row, ...]) -> str:
    """Made once for the two places of a table, and for all events that add no row."""
    found = frame(rows)
    cells = found.astype({"iteration": str})
    cells["optimization"] = found["optimization"].str.replace("|", "\\|", regex=False)
    cells["latency_ms"] = found["latency_ms"].map("{:.6f}".format)
    head, rule, body = [], [], []
    for name, right in zip(_TYPES, _RIGHT, strict=True):
        column = cells[name].astype(str)
        width = max(map(len, (name, *column)))
        head.append(name.ljust(width))
        rule.append("-" * (width + 1) + ":" if right else ":" + "-" * (width + 1))
        body.append(column.str.rjust(width) if right else column.str.ljust(width))
    lines = [head, *zip(*body, strict=True)]
    first, *others = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([first, f"|{'|'.join(rule)}|", *others]) + "\n"


def write(path: Path, rows: Sequence[Row]) -> None:
    """Put the table in place at once, or not at all: a reader never sees half of it."""
    text = render(rows).encode(errors="backslashreplace")
    with contextlib.suppress(OSError):
        if path.read_bytes() == text:
            return
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(mode)
        os.replace(temporary, path)  # noqa: PTH105 - the atomic rename is the point
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
