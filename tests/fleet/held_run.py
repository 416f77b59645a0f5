"""`tile-agent` as the tests of fleets have Ray run it: with scripted timings, and held at will.

    python held_run.py run --kernel ops/alpha.py ...

Whether a kernel is right, its tests say in Triton's interpreter as ever. How fast it is follows
from its text: what its programs and lanes cost, or the same for each where it says `EVEN`.

A file `alpha.Proposed` in the folder HOLDS has the run of the kernel alpha stand still once its
journal has that event, and `alpha.begun` before it does anything. The file ends in `.reached` then,
and holds no other run.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

from agent import session
from agent.cli import main
from agent.events import Event
from agent.harness.measuring.pytest_judge import PytestJudge
from agent.harness.processes.worker_session import Checkout
from agent.journal import Journal
from tests.support.scripted import TimedByText

HOLDS = "TILE_AGENT_TEST_HOLDS"


class ScriptedTimings(TimedByText, PytestJudge):  # type: ignore[misc]
    """Judges right and wrong as ever, and times by the text."""

    def latency_ms(self, checkout: Checkout) -> float:
        return _latency_ms(checkout)

    def config(self) -> str:
        return next(iter(self._names.values()))


def _latency_ms(checkout: Checkout) -> float:
    text = (checkout.root / checkout.kernel).read_text()
    if "EVEN" in text:
        return 1.0
    found = re.search(r"^BLOCK_SIZE = (\d+)$", text, re.MULTILINE)
    assert found is not None
    block_size = int(found.group(1))
    return 0.01 * -(-2048 // block_size) + 1e-5 * block_size


def hold(moment: str) -> None:
    """Stand still where somebody wants that."""
    name = Path.cwd().parent.name.partition("-")[0]  # that of the worker's folder begins so
    wanted = Path(os.environ.get(HOLDS, os.devnull)) / f"{name}.{moment}"
    if wanted.exists():
        wanted.rename(f"{wanted}.reached")
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pause()


def _holding(append: Callable[[Journal, Event], None]) -> Callable[[Journal, Event], None]:
    def appended(journal: Journal, event: Event) -> None:
        append(journal, event)
        hold(type(event).__name__)

    return appended


if __name__ == "__main__":
    hold("begun")
    Journal.append = _holding(Journal.append)  # type: ignore[method-assign]
    session.PytestJudge = ScriptedTimings  # type: ignore[misc]
    main()
