"""What a history says of an iteration that is under way."""

from __future__ import annotations

from agent.events import Event, Verified
from agent.journal import JournalLine
from agent.report.history import history_of
from tests.support.history import BASELINED, CALIBRATED, SCREENED, STARTED, proposed

SWEEP = proposed("occupancy", "b1", "b2", "b3")


def title_after(*events: Event) -> str:
    happened = (STARTED, BASELINED, CALIBRATED, *events)
    told = history_of([JournalLine(n, 0.0, event) for n, event in enumerate(happened)])
    (tried,) = told["tried"]
    title: str = tried["title"]
    return title


def test_a_sweep_is_called_after_its_variant_once_one_is_chosen() -> None:
    assert title_after(proposed("split", "a1")) == "split (n=0)"
    assert title_after(SWEEP) == title_after(SWEEP, SCREENED) == "occupancy, 3 variants"
    assert title_after(SWEEP, SCREENED, Verified("b3", 12)) == "occupancy (n=2)"
