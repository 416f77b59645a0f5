"""Looks at the user's repository and at the worktrees around every effect that runs foreign code.

Decided here: what a change is. The worktrees are nobody's but the run's, so whatever changed in
them was the candidate; and what git would run later, hooks and configuration, nobody edits while
a candidate is judged. Either ends the iteration as tampered. The rest of the user's repository may
change under their own hands: it is told, and decides nothing. Nor does anything that happens while
a candidate is written, for the program that does so is the user's choice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agent.candidates import Candidates
from agent.events import Event, Failed
from agent.measuring.decision import Status
from agent.state import Phase, Run, started
from agent.touched import UsersRepository, named
from agent.workspace import SANDBOX

JUDGED = (Phase.SCREEN, Phase.VERIFY, Phase.MEASURE)
"""Where code of a candidate under judgement runs."""
TOLD = (Phase.PROPOSE, Phase.SCOUT, Phase.REPAIR, Phase.SETTLE, Phase.FINISH)
"""Where programs write one, and what was kept is looked at again."""


class Watch:
    """What is looked at before and after."""

    def __init__(self, candidates: Candidates) -> None:
        """Watch their worktrees, and the repository that they are made in."""
        self._candidates = candidates
        self._users = UsersRepository(candidates.workspace.repository, leave_out=(SANDBOX,))

    def over(self, effect: Callable[[Run], Event]) -> Callable[[Run], Event]:
        """The effect, with what else changed meanwhile in its event."""

        def call(run: Run) -> Event:
            branch = started(run).branch
            before = self._users.look(branch)
            event = effect(run)
            touched = self._users.touched(before, branch)
            if run.phase in JUDGED:
                found = (*self._candidates.tampered_with(run), *touched.runs_later)
                if found:
                    event = Failed(Status.TAMPERED, correct=False, reason=f"it {named(found)}")
            return replace(event, touched=touched.all)

        return call
