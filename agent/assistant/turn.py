"""Whose turn it is in a run that an assistant leads, and what it does then."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.events import Event, Skipped
from agent.journal import Journal
from agent.options import ASSISTANT
from agent.state import Phase, Row, Run, stop_reason
from agent.transitions import advance

if TYPE_CHECKING:  # all optimizations, and a parser, which `status` has no use for
    from agent.proposers.agenda import Task
    from agent.proposers.brief import Brief

BEGIN, NEXT, TRY, FINISH = "begin", "next", "try", "finish"
DONE = "done"
EDIT = "edit"


@dataclass(frozen=True)
class Turn:
    """What the assistant does now."""

    run: Run
    do: str
    """`begin`, `next`, `edit`, `try` or `finish`; `done` when nothing is left to do."""
    reason: str = ""
    task: Task | None = None
    brief: Brief | None = None
    whole: bool = False
    """The answer says again what earlier ones said."""
    events: int = -1
    """How many the run has where something is offered."""
    draft: Path | None = None
    edited: bool = False
    """The draft holds an edit that has not been tried."""
    others: tuple[Task, ...] = ()
    again: tuple[str, ...] = ()
    """Optimizations that were tried, and may be chosen once more with another value."""
    row: Row | None = None
    """What the draft came to."""
    skipped: Skipped | None = None
    """Why the draft was not worth an iteration."""
    taken_back: bool = False
    """The run had no baseline, and is gone."""
    resumed: bool = False
    """An interrupted iteration was brought to its end; the draft was not looked at."""
    unjudged: str = ""
    """What was not judged for that reason, where it differs from what was; the words say so."""

    @property
    def is_mending(self) -> bool:
        """A candidate waits to be mended, or to be given up."""
        return self.run.phase is Phase.REPAIR


def is_led(run: Run) -> bool:
    """Whether an assistant takes part in a run."""
    return ASSISTANT in run.options.proposers


def pending(run: Run) -> tuple[str, str]:
    """What comes next in a run that no process drives, and why where that needs a word."""
    if run.phase is Phase.DONE:
        return DONE, run.stopped.reason.value if run.stopped else ""
    if run.phase in (Phase.SETUP, Phase.BASELINE, Phase.CALIBRATE):
        return BEGIN, "the baseline was interrupted; `finish` takes the run back instead"
    if run.phase is Phase.FINISH:
        return FINISH, "the last comparison was interrupted"
    if run.proposer != ASSISTANT:
        return BEGIN, f"the {run.proposer} was interrupted; `finish` ends the run instead"
    if run.phase not in (Phase.PROPOSE, Phase.REPAIR):
        return TRY, (
            f"the candidate of iteration {run.iteration} is handed in, and its judgement was "
            "interrupted: `try` goes on with that, and does not look at the draft"
        )
    if reason := stop_reason(run):
        return FINISH, run.escalation or reason.value
    if run.phase is Phase.REPAIR:
        return NEXT, (
            f"attempt {run.attempt} of {run.possible_attempts} is not kept: mend the draft and try "
            "again, or `next --decline WHY` gives it up"
        )
    return NEXT, ""


def append(run: Run, journal: Journal, event: Event) -> Run:
    """The run after an event that no effect brought about; it is in the journal then."""
    after = advance(run, event)
    journal.append(event)
    return after
