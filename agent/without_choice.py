"""Whether a run can try anything at all, asked before its noise is measured.

Comparing a kernel with itself takes up to a minute and a half, and tells nothing where nothing will
be compared with it.
"""

from __future__ import annotations

from agent.asking import Asking
from agent.events import Skipped
from agent.options import PLAYBOOK
from agent.proposers.base import Declined
from agent.proposers.playbook import PlaybookProposer, offered
from agent.state import Run


class WithoutChoice:
    """Looks whether the playbook, where nobody else proposes, has an entry that applies."""

    def __init__(self, asking: Asking) -> None:
        """Ask whoever proposes."""
        self._asking = asking
        self._passed_over: list[Skipped] | None = None

    def left(self, run: Run) -> list[Skipped] | None:
        """What is still to be passed over before the run ends; None where it has something to try.

        The entries are asked once: the incumbent is the origin for as long as this is asked.
        """
        proposer = self._asking.proposers.get(run.proposer)
        is_alone = run.proposer == PLAYBOOK and run.next_proposer is None
        if not (is_alone and isinstance(proposer, PlaybookProposer)):
            return None
        entries = proposer.left(run)
        if self._passed_over is None:
            subject, passed = self._asking.subject(run), []
            for entry in entries:
                offer = offered(entry, subject)
                if not isinstance(offer, Declined):
                    return None
                passed.append(Skipped(offer.optimization, offer.reason))
            self._passed_over = passed
        return [each for each in self._passed_over if each.optimization not in run.tried]
