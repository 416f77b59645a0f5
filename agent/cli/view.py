"""A run as a terminal shows it at a moment: a few lines and the table, as wide as fits. Pure."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agent.cli.drawing import STYLES
from agent.measuring.blocks import Telemetry
from agent.report.view import Moment, facts, shown
from agent.state import Row, Run

ROWS = 8
"""Of the table, at most: the baseline and the last iterations."""
WIDE = 110
"""Columns from which on the table says why."""
_GAP = 2
"""Columns between those of the table."""
_STATUS = len("tampered")
"""Columns of a verdict, at most."""


def view(
    run: Run, moment: Moment, telemetry: Telemetry | None, width: int, rows: int = ROWS
) -> RenderableType:
    """The run in lines of `width` columns at most.

    Args:
        run: which one.
        moment: when, and what goes on.
        telemetry: of its GPU; None where there is none, or it does not answer.
        width: of the terminal, in columns.
        rows: iterations that are shown at most; none with 0.
    """
    told = Table.grid(padding=(0, 1), expand=False)
    told.width = width
    told.add_column(width=10, style="dim", no_wrap=True)
    told.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for name, text in facts(run, moment, telemetry):
        told.add_row(name, Text(text))
    apart = Text()  # from the lines of progress above
    some = shown(run.rows, rows)
    return Group(apart, told, _table(some, width)) if some else Group(apart, told)


def _table(rows: tuple[Row, ...], width: int) -> Table:
    """No wider than its texts: less is wrapped where the terminal is made narrower."""
    names = [" ".join(row.optimization.split()) for row in rows]
    latencies = ["nan" if row.latency_ms is None else f"{row.latency_ms:.6f}" for row in rows]
    found = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    left = width - len("iteration") - max(map(len, ("latency_ms", *latencies))) - _STATUS - 3 * _GAP
    name = min(max(map(cell_len, ("optimization", *names))), left // 2 if width >= WIDE else left)
    found.add_column("iteration", justify="right", no_wrap=True)
    found.add_column("optimization", no_wrap=True, overflow="ellipsis", max_width=max(1, name))
    found.add_column("latency_ms", justify="right", no_wrap=True)
    found.add_column("status", no_wrap=True)
    if width >= WIDE:
        found.add_column("why", no_wrap=True, overflow="ellipsis", max_width=left - name - _GAP)
    for row, *cells in zip(rows, names, latencies, strict=True):
        status = Text(row.status.value, style=STYLES.get(row.status.value, ""))
        why = [Text(" ".join(row.reason.split()))] if width >= WIDE else []
        found.add_row(str(row.iteration), *map(Text, cells), status, *why)
    return found
