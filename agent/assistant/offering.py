"""`next`: the one optimization that is offered; declined, dropped or exchanged for another."""

from __future__ import annotations

from agent.assistant.drafts import draft_of, forget_what_was_judged, name_aside, subject_of
from agent.assistant.found import led
from agent.assistant.turn import EDIT, FINISH, NEXT, TRY, Turn, append, pending
from agent.errors import UsageError
from agent.events import Dropped, Offered, Skipped
from agent.journal import Journal
from agent.measuring.decision import Status
from agent.proposers.agenda import OWN_IDEA, Task, agenda
from agent.proposers.brief import brief_for
from agent.proposers.build import judged
from agent.proposers.draft import Draft
from agent.report import table
from agent.repository import Repository
from agent.runs import table_path
from agent.session import held
from agent.state import Phase, Run
from agent.workspace import Workspace

JUDGING = (Phase.SCREEN, Phase.VERIFY, Phase.MEASURE, Phase.SETTLE)
"""The phases of an iteration that has a candidate."""


def offer(
    repository: Repository,
    run_id: str | None,
    *,
    declined: str = "",
    dropped: str = "",
    wanted: str = "",
) -> Turn:
    """The ONE optimization to carry out; the same one until it is tried, declined or dropped.

    Args:
        repository: the user's.
        run_id: of the run; the only one that waits when None.
        declined: why what was offered is not worth a try; it is set aside.
        dropped: why the iteration is left behind, whatever state it is in.
        wanted: the optimization that the assistant would rather carry out.

    Raises:
        UsageError: there is no such run, or no such optimization is left.
    """
    if declined and dropped:
        raise UsageError("--decline is for what has not been tried, --drop for anything: give one")
    with held(repository, led(repository, run_id)) as (workspace, run, journal):
        draft = draft_of(repository, run)
        if dropped:
            run = _drop(workspace, run, journal, draft, dropped)
        do, reason = pending(run)
        if do != NEXT:
            return Turn(run, do, f"{reason}; `next --drop WHY` leaves it" if do == TRY else reason)
        subject = subject_of(workspace, run)
        if declined:
            if run.offer is None:
                raise UsageError("nothing is offered that could be declined: `tile-agent next`")
            draft.set_aside(subject.source.text, name_aside(run, run.offer))
            if run.offer.optimization == OWN_IDEA:
                return Turn(run, FINISH, "every optimization has been tried or declined")
            run = append(run, journal, Skipped(run.offer.optimization, " ".join(declined.split())))
        entries = judged(_backend(run), subject.kernel_class)
        tasks = agenda(run, subject, entries, wanted)
        task = _chosen(tasks, run, wanted)
        if task is None:
            return Turn(run, FINISH, "every optimization has been tried or declined")
        if run.offer is None or run.offer.optimization != task.optimization:
            run = append(run, journal, Offered(task.optimization, task.family, task.title))
        forget_what_was_judged(workspace, run, draft)
        edited = draft.prepare(subject.source.text)
        return Turn(
            run,
            EDIT,
            task=task,
            brief=brief_for(run, subject, task).text,
            draft=draft.path,
            edited=edited,
            others=tuple(other for other in tasks if other != task),
        )


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


def _drop(workspace: Workspace, run: Run, journal: Journal, draft: Draft, reason: str) -> Run:
    """Leave behind what is offered, or the iteration that came of it, and free what it held.

    Its commits stay, and so does what stood in the draft: nothing is lost but the judgement.

    Raises:
        UsageError: there is nothing to leave behind, or its commit is on the branch already.
    """
    started = run.started
    assert started is not None
    if run.phase is Phase.PROPOSE and run.offer is not None:
        text = workspace.repository.read(run.incumbent_sha, started.kernel).decode()
        draft.set_aside(text, name_aside(run, run.offer))
    elif run.phase not in JUDGING:
        raise UsageError("nothing is offered or tried that could be dropped: `tile-agent status`")
    elif _is_kept(workspace, run, started.branch):
        raise UsageError(f"iteration {run.iteration} is kept: `tile-agent try` records it")
    workspace.close()
    run = append(run, journal, Dropped(" ".join(reason.split())))
    for path in (table_path(workspace.repository), draft.path.parents[1] / "perf_results.md"):
        table.write(path, run.rows)
    return run


def _is_kept(workspace: Workspace, run: Run, branch: str) -> bool:
    """Whether git has followed a verdict that the journal does not know of yet."""
    if run.verdict is None or run.verdict.status is not Status.KEEP or run.candidate is None:
        return False
    return workspace.branch_holds(branch, run.candidate.sha)


def _backend(run: Run) -> str:
    assert run.started is not None
    return run.started.backend
