"""Has the tasks that need judgement carried out by a writer: a language model, or a program."""

from __future__ import annotations

from collections.abc import Sequence

from agent.analysis.common.subject import Subject
from agent.events import StopReason
from agent.memory import PastRuns
from agent.playbook import by_class
from agent.playbook.base import Entry
from agent.proposers.agenda import OWN_IDEA, Task, agenda
from agent.proposers.answer import doubts
from agent.proposers.base import Declined, Exhausted, Proposal, ProposedVariant, title_of
from agent.proposers.brief import brief_for
from agent.proposers.writer import Chosen, Refused, Spent, Writer, Written
from agent.state import Run
from agent.store.experience import NOTHING
from agent.store.recall import Recall

PATIENCE = 5
"""Answers in a row that were no candidates, after which nobody is asked any more."""


class JudgementProposer:
    """Takes the next task of the agenda, and hands its writer's answer to the loop.

    What makes the answer worth anything is the loop: it is tested and measured like every other.
    """

    def __init__(
        self,
        writer: Writer,
        entries: Sequence[Entry],
        memory: PastRuns | None = None,
        recall: Recall | None = None,
    ) -> None:
        """Take the entries of one backend, and who carries them out.

        `memory` is told to the writer, and what is recalled of kernels like this one.
        """
        self._writer = writer
        self._entries = entries
        self._memory = memory
        self._recall = recall

    def propose(self, run: Run, subject: Subject) -> Proposal | Declined | Exhausted:
        """The writer's candidate for the most promising task that is left."""
        if run.refusals >= PATIENCE:
            why = f"{run.refusals} answers in a row were no candidates"
            return Exhausted(_with_last(run, why), StopReason.UNUSABLE)
        experience = self._recall.of(run) if self._recall else NOTHING
        entries = by_class(self._entries, run.kernel_class)
        tasks = agenda(run, subject, entries, experience=experience)
        task = next((task for task in tasks if task.fits), None)
        if task is None:
            return Exhausted()
        chosen = self._writer.choose(run, tasks)
        if isinstance(chosen, Refused):
            return Exhausted(chosen.reason, StopReason.UNANSWERED)
        if chosen is not None:
            task = chosen.task
        tried = self._memory.tried(run) if self._memory else ()
        written = self._writer.write(brief_for(run, subject, task, tried, experience), run)
        if isinstance(written, Spent):
            return Exhausted(written.reason, StopReason.ASKING)
        usage = written.usage + chosen.usage if chosen else written.usage
        if isinstance(written, Refused):
            if written.hopeless:
                return Exhausted(written.reason, StopReason.UNANSWERED)
            return Declined(task.optimization, written.reason, usage)
        title = _title(task, written.title, self._writer.name)
        return Proposal(
            optimization=task.optimization,
            family=task.family,
            hypothesis=_hypothesis(written, chosen, f"{task.title}, by the {self._writer.name}"),
            variants=(ProposedVariant({}, title, written.source),),
            expected_gain=written.expected_gain,
            risk=written.risk,
            doubts=doubts(subject.source, written.source),
            usage=usage,
        )


def _with_last(run: Run, why: str) -> str:
    """The reason with that of the last answer: five of the same kind have one mend."""
    return f"{why}; the last: {run.skipped[-1].reason}" if run.skipped else why


def _hypothesis(written: Written, chosen: Chosen | None, otherwise: str) -> str:
    """Why it should help, and why it was its turn where the writer chose."""
    text = written.hypothesis or otherwise
    return f"{text} Chosen because: {chosen.reason}" if chosen and chosen.reason else text


def _title(task: Task, named: str, writer: str) -> str:
    """What the table calls it: who did it is part of the name."""
    own = title_of(" ".join(named.replace("|", " ").split()))
    return f"{own if own and task.optimization == OWN_IDEA else task.title} ({writer})"
