"""`perf_results.md`: the five-column table and nothing else.

The layout is the one TileGym's performance skill shows: columns padded to their widest cell,
numbers and the status to the right, text to the left, latency with six decimals. An iteration
that was never timed has `nan` there, which pandas and people both read as 'no number'.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

from agent.state import Row

COLUMNS = ("iteration", "optimization", "latency_ms", "correctness", "status")
_RIGHT = (True, False, True, False, True)


def render(rows: Sequence[Row]) -> str:
    """The table as Markdown, ending in one newline."""
    cells = [COLUMNS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(COLUMNS))]
    rule = "|".join(
        "-" * (width + 1) + ":" if right else ":" + "-" * (width + 1)
        for width, right in zip(widths, _RIGHT, strict=True)
    )
    lines = [
        " | ".join(
            cell.rjust(width) if right and number else cell.ljust(width)
            for cell, width, right in zip(line, widths, _RIGHT, strict=True)
        )
        for number, line in enumerate(cells)
    ]
    body = [f"| {line} |" for line in lines]
    return "\n".join([body[0], f"|{rule}|", *body[1:]]) + "\n"


def write(path: Path, rows: Sequence[Row]) -> None:
    """Put the table in place at once, or not at all: a reader never sees half of it."""
    text = render(rows)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(mode)
        os.replace(temporary, path)  # noqa: PTH105 - the atomic rename is the point
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _cells(row: Row) -> tuple[str, ...]:
    return (
        str(row.iteration),
        " ".join(row.optimization.split()).replace("|", "\\|"),
        "nan" if row.latency_ms is None else f"{row.latency_ms:.6f}",
        "PASS" if row.correct else "FAIL",
        row.status.value,
    )
