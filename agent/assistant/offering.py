"""`next`: the one optimization that is offered; declined, dropped or exchanged for another."""

from __future__ import annotations

from agent.analysis.common.subject import Subject
from agent.assistant.drafts import draft_of, forget_what_was_judged, name_aside, subject_of
from agent.assistant.found import led
from agent.assistant.leaving import drop, give_up
from agent.assistant.told import NOTHING as NOBODY_TOLD
from agent.assistant.told import Told, told_of
from agent.assistant.turn import EDIT, FINISH, NEXT, TRY, Turn, append, pending
from agent.errors import UsageError
from agent.events import Offered, Skipped
from agent.memory import PastRuns
from agent.playbook import by_class
from agent.proposers.agenda import OWN_IDEA, Task, agenda
from agent.proposers.brief import Brief, brief_for
from agent.proposers.build import judged
from agent.proposers.draft import Draft
from agent.repository import Repository
from agent.session import held
from agent.state import Phase, Run
from agent.store.experience import NOTHING, Experience
from agent.store.recall import Recall
from agent.workspace import Workspace


def offer(
    repository: Repository,
    run_id: str | None,
    *,
    declined: str = "",
    dropped: str = "",
    wanted: str = "",
    whole: bool = False,
) -> Turn:
    """The ONE optimization to carry out; the same one until it is tried, declined or dropped.

    While a candidate may be mended it is that candidate, until it is kept or given up: by a reason
    to decline or drop it, or by the choice of another optimization.

    Args:
        repository: the user's.
        run_id: of the run; the only one that waits when None.
        declined: why what was offered is not worth a try; it is set aside.
        dropped: why the iteration is left behind, whatever state it is in.
        wanted: the optimization that the assistant would rather carry out.
        whole: the brief says again what it said before; so it does where nothing happened since
            it was asked for last, and of a candidate that may be mended.

    Raises:
        UsageError: there is no such run, or no such optimization is left.
    """
    if declined and dropped:
        raise UsageError("--decline is for what has not been tried, --drop for anything: give one")
    with held(repository, led(repository, run_id)) as (workspace, run, journal):
        draft = draft_of(repository, run)
        if run.phase is Phase.REPAIR:
            if why := declined or dropped or _in_favour_of(workspace, run, wanted):
                run, declined = give_up(workspace, run, journal, draft, why), ""
                workspace.close()
        elif dropped:
            run = drop(workspace, run, journal, draft, dropped)
        do, reason = pending(run)
        if do != NEXT:
            return Turn(run, do, f"{reason}; `next --drop WHY` leaves it" if do == TRY else reason)
        if run.phase is Phase.REPAIR:
            return _mending(workspace, run, draft, reason)
        subject = subject_of(workspace, run)
        if declined:
            if run.offer is None:
                raise UsageError("nothing is offered that could be declined: `tile-agent next`")
            draft.set_aside(subject.source.text, name_aside(run, run.offer))
            if run.offer.optimization == OWN_IDEA:
                return Turn(run, FINISH, "every optimization has been tried or declined")
            run = append(run, journal, Skipped(run.offer.optimization, " ".join(declined.split())))
        experience = Recall(workspace.repository).of(run)
        tasks = _tasks(run, subject, wanted, experience)
        task = _chosen(tasks, run, wanted)
        if task is None:
            return Turn(run, FINISH, "every optimization has been tried or declined")
        if run.offer is None or run.offer.optimization != task.optimization:
            run = append(run, journal, Offered(task.optimization, task.family, task.title))
        forget_what_was_judged(workspace, run, draft)
        edited = draft.prepare(subject.source.text)
        told = told_of(repository, run)
        whole = whole or told.events == len(journal.events)
        return Turn(
            run,
            EDIT,
            task=task,
            brief=_brief(workspace, run, subject, task, experience, NOBODY_TOLD if whole else told),
            whole=whole,
            events=len(journal.events),
            draft=draft.path,
            edited=edited,
            others=tuple(other for other in tasks if other != task),
            again=tuple(name for name in run.tried if name not in {*run.spent_out, OWN_IDEA}),
        )


def _mending(workspace: Workspace, run: Run, draft: Draft, reason: str) -> Turn:
    """The candidate that may be mended, with what was asked for."""
    assert run.started is not None and run.proposal is not None
    subject, wanted = subject_of(workspace, run), run.proposal.optimization
    task = next((t for t in _tasks(run, subject, wanted) if t.optimization == wanted), None)
    experience = Recall(workspace.repository).of(run)
    judged_text = workspace.repository.read(run.shown.sha, run.started.kernel).decode()
    return Turn(
        run,
        EDIT,
        reason,
        task=task,
        brief=_brief(workspace, run, subject, task, experience) if task else None,
        whole=True,
        draft=draft.path,
        edited=draft.prepare(judged_text),
    )


def _brief(
    workspace: Workspace,
    run: Run,
    subject: Subject,
    task: Task,
    experience: Experience,
    told: Told = NOBODY_TOLD,
) -> Brief:
    """What is known, with what this run and earlier ones judged on the kernel."""
    tried = PastRuns(workspace.repository).tried(run)
    change = _change(workspace, run, told)
    return brief_for(run, subject, task, tried, experience, told.digests, change)


def _change(workspace: Workspace, run: Run, told: Told) -> str:
    """What the code became since it was told; empty where it was not, or is the same."""
    assert run.started is not None
    known = {run.started.origin_sha, *(row.sha for row in run.kept)} - {run.incumbent_sha}
    if told.code not in known:
        return ""
    return workspace.repository.diff(told.code, run.incumbent_sha, run.started.kernel)


def _in_favour_of(workspace: Workspace, run: Run, wanted: str) -> str:
    """Why a candidate is not mended where another optimization is chosen; empty where none is."""
    if not wanted:
        return ""
    _chosen(_tasks(run, subject_of(workspace, run), wanted), run, wanted)
    return f"{wanted} was chosen"


def _tasks(
    run: Run, subject: Subject, wanted: str, experience: Experience = NOTHING
) -> tuple[Task, ...]:
    assert run.started is not None
    entries = by_class(judged(run.started.backend), run.kernel_class)
    return agenda(run, subject, entries, wanted, experience)


def _chosen(tasks: tuple[Task, ...], run: Run, wanted: str) -> Task | None:
    """What was asked for, else what is offered already, else the most promising one."""
    by_name = {task.optimization: task for task in tasks}
    if wanted:
        if wanted not in by_name:
            raise UsageError(f"{wanted!r} is not left to try; there are: {', '.join(by_name)}")
        return by_name[wanted]
    if run.offer is not None and run.offer.optimization in by_name:
        return by_name[run.offer.optimization]
    return next((task for task in tasks if task.fits), None)
