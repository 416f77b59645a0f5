"""What a run tried: each candidate with its verdict, and whether it is known to have failed.

An attempt is known to have failed where its results were wrong, where it did not run, or where it
gained too little beyond doubt. A comparison that left a good step possible says nothing once the
noise is less: until then another one would leave as much open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from agent.errors import UsageError
from agent.events import Event
from agent.journal import replay
from agent.measuring.decision import Rules, Status
from agent.playbook import find
from agent.report.iterations import Iteration, iterations


@dataclass(frozen=True)
class JudgedEdit:
    """What a run judged, in full."""

    run_id: str
    iteration: int
    title: str
    hypothesis: str
    status: Status
    reason: str
    change: str
    """A unified diff; empty where git no longer has it."""


@dataclass(frozen=True)
class PastAttempt:
    """A candidate that a run has judged, or set aside for a better one of its sweep."""

    run_id: str
    iteration: Iteration
    """As it stood when the attempt was judged."""
    title: str
    before: str
    """The commit that it changes, and its own."""
    after: str
    reason: str
    status: Status
    judged: bool
    """Rather than set aside by a cheap look."""
    failed: bool
    """It is known not to be worth another try."""
    left_open: bool = False
    """Its comparison found no gain, and was too coarse to leave none possible."""

    @property
    def optimization(self) -> str:
        """The entry's name, or that of who had the idea."""
        return self.iteration.proposal.optimization

    @property
    def depends_on(self) -> frozenset[str]:
        """Families of which a keep makes it worth another try."""
        with suppress(UsageError):  # what no entry describes depends on nothing that is known
            return find(self.optimization).depends_on
        return frozenset()

    def told(self, change: str) -> JudgedEdit:
        """For whoever thinks about what comes next."""
        return JudgedEdit(
            run_id=self.run_id,
            iteration=self.iteration.number,
            title=self.title,
            hypothesis=self.iteration.proposal.hypothesis,
            status=self.status,
            reason=self.reason,
            change=change,
        )


def attempts(events: Sequence[Event]) -> Iterator[PastAttempt]:
    """What a run has tried, oldest first; an iteration under way is not among it.

    Raises:
        TransitionError: the events make no run.
    """
    run = replay(events)
    if run.started is None:
        return
    rules = run.options.rules
    for iteration in iterations(events):
        if iteration.row is None:
            continue
        for each in (*iteration.earlier, iteration):  # those before the last were mended to it
            yield from _of_one(run.started.run_id, each, rules)


def _of_one(run_id: str, each: Iteration, rules: Rules) -> Iterator[PastAttempt]:
    """The candidates of one attempt of an iteration: one was judged, the others lost to it."""
    assert each.verdict is not None
    status = each.verdict.status
    failed = _failed(each, status, rules)
    shown = each.judged_sha or each.shown_sha
    reasons = {result.sha: result.reason for result in (*each.screened, *each.rejected)}
    for candidate in each.proposal.candidates:
        judged = candidate.sha == shown
        lost = "looked slower than another value"
        yield PastAttempt(
            run_id=run_id,
            iteration=each,
            title=candidate.title,
            before=each.base_sha,
            after=candidate.sha,
            reason=each.verdict.reason if judged else reasons.get(candidate.sha) or lost,
            status=status if judged else Status.REVERT,
            judged=judged,
            failed=failed if judged else failed or status is Status.KEEP,
            left_open=status is Status.REVERT and each.comparison is not None and not failed,
        )


def _failed(iteration: Iteration, status: Status, rules: Rules) -> bool:
    """Whether a verdict says that the same edit is not worth another try."""
    failure, comparison = iteration.failure, iteration.comparison
    if failure is not None:
        tested = status in (Status.REVERT, Status.CRASH)
        return tested and not (failure.incumbent or failure.unmeasured)
    if comparison is None or status is not Status.REVERT:
        return False
    lost = any(rules.regressed(config.effect) for config in comparison.configs)
    return lost or comparison.overall.high < rules.minor
