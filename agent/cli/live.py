"""The view of a run on a terminal, while it goes on in this process or in another."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.cli import output
from agent.cli.drawing import for_terminal, labelled
from agent.cli.live_lines import LiveLines
from agent.cli.view import ROWS, view
from agent.environment import Gpu
from agent.harness.measuring.gpu import GpuWatch
from agent.measuring.blocks import Telemetry
from agent.report.view import Moment
from agent.runs import activity
from agent.state import Run

ABOVE_TABLE = 7
"""Rows of the view beside the table's own, its head among them."""


class LiveView:
    """A run as it was last seen, to be drawn at any time."""

    def __init__(self, run: Run, folder: Path, look: Callable[[], Telemetry | None]) -> None:
        """See a run.

        Args:
            run: as it stands.
            folder: of the run, where it says what it is at.
            look: reads its GPU.
        """
        self._folder = folder
        self._look = look
        self._run, self._since_s = run, time.time()

    def saw(self, run: Run, since_s: float | None = None) -> None:
        """The run has gone on.

        Args:
            run: as it stands now.
            since_s: when its phase began, in seconds since the epoch; now when left out.
        """
        self._run, self._since_s = run, time.time() if since_s is None else since_s

    def draw(self, columns: int, rows: int) -> str:
        """The lines as a terminal takes them."""
        run, since_s = self._run, self._since_s
        moment = Moment(max(0.0, time.time() - since_s), activity(self._folder, run))
        shown = max(0, min(ROWS, rows - ABOVE_TABLE))
        return for_terminal(view(run, moment, self._look(), columns, shown), columns)


@contextmanager
def live_view(run: Run, folder: Path) -> Iterator[LiveView]:
    """Show a run below the lines of progress while the block lasts."""
    with telemetry(run) as look:
        seen = LiveView(run, folder, look)
        with LiveLines(sys.stderr, seen.draw) as lines:

            def log(line: str) -> None:
                lines.log(for_terminal(labelled(line), 80, soft_wrap=True).rstrip("\n"))

            with output.shown_by(log):
                yield seen


@contextmanager
def telemetry(run: Run) -> Iterator[Callable[[], Telemetry | None]]:
    """Reads the GPU of a run; nothing where it has none, or where that is in another machine."""
    import pynvml

    gpus = run.started.environment["gpus"] if run.started else ()
    try:
        watch = GpuWatch(Gpu(**gpus[0])) if gpus else None
    except (pynvml.NVMLError, TypeError):  # a journal of an older version says less of it
        watch = None
    try:
        yield watch.look if watch else lambda: None
    finally:
        if watch:
            watch.close()
