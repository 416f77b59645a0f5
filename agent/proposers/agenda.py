"""What is left for somebody with judgement: the tasks, and in which order they come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from agent.analysis.common.subject import NotApplicable, Subject
from agent.analysis.triton.wrapped import decorated
from agent.playbook.base import Advice, Entry, Optimization
from agent.proposers.faults import faults_as_refusals
from agent.state import Run
from agent.store.experience import NOTHING, Experience

OWN_IDEA = "own-idea"
"""The optimization that no entry of the playbook describes."""
AT_THE_END = "what was kept is the outermost of the values tried, and one beyond it may gain more"


@dataclass(frozen=True)
class Task:
    """ONE optimization to carry out by judgement."""

    optimization: str
    """The entry's name, or `own-idea`."""
    family: str
    title: str
    prose: str
    """When, do, risk, source; Markdown."""
    expected: str
    why: str
    """What in the source speaks for it, or why no program could do it."""
    fits: bool = True
    """False: the program found it not to apply. Judgement may know better."""


_OWN = Task(
    optimization=OWN_IDEA,
    family=OWN_IDEA,
    title="own idea",
    prose=(
        "When: the entries of the playbook are tried, or none of them is what this kernel needs.\n"
        "Do: change ONE thing that the evidence points to, and name it.\n"
        "Risk: a change without a reason from the evidence is a guess.\n"
        "Source: yours."
    ),
    expected="say what you expect",
    why="whatever the evidence points to",
)


def agenda(
    run: Run,
    subject: Subject,
    entries: Sequence[Entry],
    wanted: str = "",
    experience: Experience = NOTHING,
) -> tuple[Task, ...]:
    """The tasks that are left, most promising first.

    What was tried is done with, unless it is `wanted`, or offered, once more: with another value;
    or unless what was kept of it is the first or the last of the values that were tried.

    What fits, then `own-idea`, then what a program found not to apply. Within each, the order is
    that of `entries`, with the families that the diagnosis names first; before that comes what
    gained on kernels like this one, by `experience`, and last what failed there often.
    """
    again = {wanted, run.offer.optimization if run.offer else ""}
    again |= run.at_the_end
    left = [entry for entry in entries if entry.name not in run.tried or entry.name in again]
    tasks = [
        replace(task, why=f"{AT_THE_END}; {task.why}", fits=True)
        if task.optimization in run.at_the_end
        else task
        for task in _tasks(subject, left)
    ]
    tasks.sort(
        key=lambda task: (
            not task.fits,
            task.family in run.demoted,
            experience.place(task.optimization),
            run.family_rank(task.family),
        )
    )
    tasks.insert(sum(task.fits for task in tasks), _OWN)
    if only := run.options.only:
        tasks = [task for task in tasks if task.optimization in only]
    return tuple(tasks)


def _tasks(subject: Subject, entries: Sequence[Entry]) -> Iterator[Task]:
    subject = replace(subject, source=decorated(subject.source))
    for entry in entries:
        fits, why = True, ""
        try:
            with faults_as_refusals():
                why = why_here(entry, subject)
        except NotApplicable as reason:
            fits, why = False, str(reason)
        yield Task(
            optimization=entry.name,
            family=entry.family,
            title=entry.title,
            prose=entry.prose,
            expected=entry.expected,
            why=why,
            fits=fits,
        )


def why_here(entry: Entry, subject: Subject) -> str:
    """What speaks for an entry here, in one line. Raises `NotApplicable` otherwise."""
    if isinstance(entry, Advice):
        return entry.fits(subject)
    assert isinstance(entry, Optimization)
    variants = [entry.describe(params) for params in entry.variants(subject)]
    return f"a program would try: {', '.join(variants)}"
