"""What short looks of earlier runs gave: nobody looks again at the same edit of the same text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.events import Event, Scouted
from agent.measuring.screening import ScreenResult
from agent.state import Run
from agent.transitions import advance


@dataclass(frozen=True)
class PastLook:
    """One that a run took itself."""

    before: str
    """The commit that was the incumbent, and the one that was looked at beside it."""
    after: str
    configs: tuple[str, ...]
    """Those that were looked at, where comparisons measure more."""
    result: ScreenResult


def past_looks(events: Sequence[Event]) -> tuple[PastLook, ...]:
    """Those of a run's events in which something was seen.

    Raises:
        TransitionError: the events make no run.
    """
    run, found = Run(), list[PastLook]()
    for event in events:
        if isinstance(event, Scouted):
            found += (
                PastLook(run.incumbent_sha, result.sha, event.configs, result)
                for result in event.results
                if result.improvement is not None
                and not result.is_cut
                and result.sha not in event.known
            )
        run = advance(run, event)
    return tuple(found)
