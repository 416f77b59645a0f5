"""Runs a scripted run in a process of its own and kills it at a chosen point.

The process dies at the first time that the phase comes to the moment: `before` its effect, `after`
it, with half of its event on disk (`torn`), or once the event is on disk (`written`). A phase of
`-` never comes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from agent.events import Event
from agent.journal import Journal, replay
from agent.loop import Effect, drive
from agent.options import ASSISTANT, Options
from agent.state import Phase, Run
from tests.support.scenario import ENTRIES, MENDED, STEPS
from tests.support.scripted import ScriptedRun

SCENARIOS: dict[str, Callable[[Path], ScriptedRun]] = {
    "playbook": lambda repo: ScriptedRun(repo, STEPS),
    "scouting": lambda repo: ScriptedRun(repo, (), entries=ENTRIES),
    "assistant": lambda repo: ScriptedRun(repo, MENDED, Options(proposers=(ASSISTANT,))),
}


def main(repo: str, phase: str, moment: str, proposer: str = "playbook") -> None:
    """Begin the run or go on with it."""
    scripted = SCENARIOS[proposer](Path(repo))
    path = scripted.folder / "journal.jsonl"

    def reached(state: Run, now: str) -> bool:
        return (state.phase.value, now) == (phase, moment)

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def wrapped(effect: Effect) -> Effect:
        def call(state: Run) -> Event:
            if reached(state, "before"):
                die()
            event = effect(state)
            if reached(state, "after"):
                die()
            if reached(state, "torn"):
                with path.open("ab") as file:
                    file.write(b'{"crc":"00000000","seq":99,"type":"Sett')
                    os.fsync(file.fileno())
                die()
            current.append(state)
            return event

        return call

    def observe(_state: Run, _event: Event) -> None:
        if reached(current[-1], "written"):
            die()

    current: list[Run] = []
    if path.exists():
        journal = Journal(path)
        run = replay(journal.events)
    else:
        run, journal = scripted.begin()
    effects = {each: wrapped(effect) for each, effect in scripted.effects().table().items()}
    assert drive(run, journal, effects, observe).phase is Phase.DONE
