"""The deterministic proposer: the playbook's entries in the order of the kernel's class."""

from __future__ import annotations

from collections.abc import Sequence

from agent.playbook.base import NotApplicable, Optimization, Subject
from agent.proposers.base import Declined, Proposal, ProposedVariant
from agent.state import Run


class PlaybookProposer:
    """Tries each optimization once, in order; families that gained little come last."""

    def __init__(self, playbook: Sequence[Optimization]) -> None:
        """Take the optimizations of one backend, in order of priority."""
        self._playbook = playbook

    def propose(self, run: Run, subject: Subject) -> Proposal | Declined | None:
        """The next optimization that has not been tried."""
        left = [entry for entry in self._playbook if entry.name not in run.tried]
        if only := run.options.only:
            left = [entry for entry in left if entry.name in only]
        left.sort(key=lambda entry: entry.family in run.demoted)  # stable: order is kept otherwise
        if not left:
            return None
        entry = left[0]
        try:
            return Proposal(
                optimization=entry.name,
                family=entry.family,
                hypothesis=entry.hypothesis,
                variants=_variants(entry, subject),
            )
        except NotApplicable as reason:
            return Declined(entry.name, str(reason))


def _variants(entry: Optimization, subject: Subject) -> tuple[ProposedVariant, ...]:
    """Every distinct text that the entry's parameters give.

    A variant that does not apply is left out as long as another one does.
    """
    found: dict[str, ProposedVariant] = {}
    refusal: NotApplicable | None = None
    for params in entry.variants(subject):
        try:
            text = entry.apply(subject, params)
        except NotApplicable as reason:
            refusal = reason
            continue
        if text != subject.source.text:
            found.setdefault(text, ProposedVariant(params, entry.describe(params), text))
    if not found:
        raise refusal or NotApplicable("nothing would change")
    return tuple(found.values())
