"""The loop led by an assistant that comes and goes: begin, next, try, finish.

The assistant writes; the program verifies, measures, decides and records, exactly as it does for
any other proposer. Between two calls no process lives: all that is known stands in the journal
and in the draft, so that a call can be repeated, killed, or made by somebody who knows nothing of
the calls before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, Subject
from agent.errors import BaselineFailed, UsageError
from agent.events import Dropped, Event, Offered, Skipped, Stopped, StopReason
from agent.journal import Journal
from agent.loop import Observer, drive
from agent.measuring.decision import Status
from agent.options import ASSISTANT, Request
from agent.proposers.agenda import OWN_IDEA, Task, agenda
from agent.proposers.brief import brief_for
from agent.proposers.build import judged
from agent.proposers.draft import Draft, DraftProposer
from agent.report import table
from agent.repository import Repository
from agent.runs import find_runs, read_run, runs_folder, table_path
from agent.session import Session, begin, held, opened, reopened
from agent.state import Phase, Row, Run, stop_reason
from agent.syntax import Source
from agent.transitions import advance
from agent.workspace import Workspace

BEGIN, NEXT, TRY, FINISH = "begin", "next", "try", "finish"
DONE = "done"
EDIT = "edit"

JUDGING = (Phase.SCREEN, Phase.VERIFY, Phase.MEASURE, Phase.SETTLE)
"""The phases of an iteration that has a candidate."""


Observing = Callable[[Session], Observer]
"""Makes what is told of each event of a session."""
Say = Callable[[str], None]
"""Told in a line what is waited for."""


@dataclass(frozen=True)
class Turn:
    """What the assistant does now."""

    run: Run
    do: str
    """`begin`, `next`, `edit`, `try` or `finish`; `done` when nothing is left to do."""
    reason: str = ""
    task: Task | None = None
    brief: str = ""
    draft: Path | None = None
    edited: bool = False
    """The draft holds an edit that has not been tried."""
    others: tuple[Task, ...] = ()
    row: Row | None = None
    """What the draft came to."""
    skipped: Skipped | None = None
    """Why the draft was not worth an iteration."""
    resumed: bool = False
    """An interrupted iteration was brought to its end; the draft was not looked at."""


def is_led(run: Run) -> bool:
    """Whether an assistant takes part in a run."""
    return ASSISTANT in run.options.proposers


def pending(run: Run) -> tuple[str, str]:
    """What comes next in a run that no process drives, and why where that needs a word."""
    if run.phase is Phase.DONE:
        return DONE, run.stopped.reason.value if run.stopped else ""
    if run.phase in (Phase.SETUP, Phase.BASELINE, Phase.CALIBRATE):
        return BEGIN, "the baseline was interrupted"
    if run.phase is Phase.FINISH:
        return FINISH, "the last comparison was interrupted"
    if run.proposer != ASSISTANT:
        return BEGIN, f"the {run.proposer} was interrupted"
    if run.phase is not Phase.PROPOSE:
        return TRY, f"iteration {run.iteration} was interrupted"
    if reason := stop_reason(run):
        return FINISH, run.escalation or reason.value
    return NEXT, ""


# --- the verbs ----------------------------------------------------------------------------------


def begin_run(
    request: Request,
    observer: Observing,
    announce: Callable[[Session], None],
    say: Say,
) -> Turn:
    """Set up, record the baseline, and let whoever comes before the assistant do its part.

    A run on this kernel that waits for an assistant is gone on with instead.

    Raises:
        UsageError: something is missing or wrong; nothing has been changed.
    """
    repository = Repository.open(request.kernel.absolute().parent)
    if (open_run := _open_on(repository, request.kernel)) is not None:
        return _continued(repository, open_run, observer, say)
    with opened(request, say) as session:
        announce(session)
        run, journal, made = begin(session)
        try:
            run = drive(run, journal, session.effects().table(), observer(session), _waits)
        except UsageError as problem:
            session.workspace.undo_setup(made)
            if isinstance(problem, BaselineFailed):
                raise type(problem)(session.with_log(str(problem))) from problem
            raise
        finally:
            journal.close()
    return Turn(run, *pending(run))


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
    with held(repository, _led(repository, run_id)) as (workspace, run, journal):
        draft = _draft(repository, run)
        if dropped:
            run = _drop(workspace, run, journal, draft, dropped)
        do, reason = pending(run)
        if do != NEXT:
            return Turn(run, do, f"{reason}; `next --drop WHY` leaves it" if do == TRY else reason)
        subject = _subject(workspace, run)
        if declined:
            if run.offer is None:
                raise UsageError("nothing is offered that could be declined: `tile-agent next`")
            draft.set_aside(subject.source.text, _name_aside(run, run.offer))
            if run.offer.optimization == OWN_IDEA:
                return Turn(run, FINISH, "every optimization has been tried or declined")
            run = _append(run, journal, Skipped(run.offer.optimization, " ".join(declined.split())))
        entries = judged(_backend(run), subject.kernel_class)
        tasks = agenda(run, subject, entries, wanted)
        task = _chosen(tasks, run, wanted)
        if task is None:
            return Turn(run, FINISH, "every optimization has been tried or declined")
        if run.offer is None or run.offer.optimization != task.optimization:
            run = _append(run, journal, Offered(task.optimization, task.family, task.title))
        _forget_what_was_judged(workspace, run, draft)
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


def attempt(
    repository: Repository,
    run_id: str | None,
    message: str,
    observer: Observing,
    say: Say,
) -> Turn:
    """Judge the draft; or bring an iteration that was interrupted to its end.

    Raises:
        UsageError: the draft cannot be a candidate, or none is asked for; nothing is recorded.
    """
    name = _led(repository, run_id)
    with held(repository, name) as (workspace, run, _):
        do, reason = pending(run)
        resumed = do == TRY
        draft = _draft(repository, run)
        proposer = None
        if do == NEXT:
            if run.offer is None:
                raise UsageError("no optimization has been asked for: `tile-agent next`")
            text = draft.checked(_subject(workspace, run).source)
            proposer = DraftProposer(run.offer, text, message)
        elif not resumed:
            return Turn(run, do, reason)
    with reopened(repository, name, say) as (session, run, journal):
        began = run.iteration
        effects = session.effects(**({ASSISTANT: proposer} if proposer else {}))

        def judged_once(now: Run) -> bool:
            at_rest = now.phase is Phase.PROPOSE and (now.iteration > began or now.offer is None)
            return now.phase is Phase.DONE or at_rest

        run = drive(run, journal, effects.table(), observer(session), judged_once)
        _forget_what_was_judged(session.workspace, run, draft, proposer.text if proposer else "")
        session.workspace.close()
    judged_now = run.iteration > began
    return Turn(
        run,
        *pending(run),
        row=run.rows[-1] if judged_now else None,
        skipped=None if judged_now else run.skipped[-1],
        resumed=resumed,
    )


def finish_run(repository: Repository, run_id: str | None, observer: Observing, say: Say) -> Turn:
    """Compare origin and best afresh and end the run; of one that is done, say so again.

    Raises:
        UsageError: there is no such run, or it has no baseline yet.
    """
    name = _led(repository, run_id, done=True)
    with held(repository, name) as (_, run, journal):
        do, reason = pending(run)
        if do in (DONE, BEGIN):
            return Turn(run, do, reason)
        if run.phase is Phase.PROPOSE:
            run = _append(run, journal, Stopped(stop_reason(run) or StopReason.ASKED))
    with reopened(repository, name, say) as (session, run, journal):
        effects, observe = session.effects(), observer(session)
        run = drive(run, journal, effects.table(), observe, _between)
        if run.phase is Phase.PROPOSE:  # an iteration had been interrupted
            run = _append(run, journal, Stopped(stop_reason(run) or StopReason.ASKED))
            run = drive(run, journal, effects.table(), observe)
    return Turn(run, DONE)


# --- helpers ------------------------------------------------------------------------------------


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
        draft.set_aside(text, _name_aside(run, run.offer))
    elif run.phase not in JUDGING:
        raise UsageError("nothing is offered or tried that could be dropped: `tile-agent status`")
    elif _is_kept(workspace, run, started.branch):
        raise UsageError(f"iteration {run.iteration} is kept: `tile-agent try` records it")
    workspace.close()
    run = _append(run, journal, Dropped(" ".join(reason.split())))
    for path in (table_path(workspace.repository), draft.path.parents[1] / "perf_results.md"):
        table.write(path, run.rows)
    return run


def _is_kept(workspace: Workspace, run: Run, branch: str) -> bool:
    """Whether git has followed a verdict that the journal does not know of yet."""
    if run.verdict is None or run.verdict.status is not Status.KEEP or run.candidate is None:
        return False
    return workspace.branch_holds(branch, run.candidate.sha)


def _name_aside(run: Run, offer: Offered) -> str:
    """What names a draft that was not tried."""
    return f"{run.iteration:02d}-{offer.optimization}"


def _waits(run: Run) -> bool:
    """Whether the run is done, or it is the assistant's turn."""
    return run.phase is Phase.DONE or (run.phase is Phase.PROPOSE and run.proposer == ASSISTANT)


def _between(run: Run) -> bool:
    return run.phase in (Phase.PROPOSE, Phase.DONE)


def _continued(repository: Repository, run_id: str, observer: Observing, say: Say) -> Turn:
    with held(repository, run_id) as (_, run, _journal):
        do, reason = pending(run)
    if do == BEGIN:
        with reopened(repository, run_id, say) as (session, run, journal):
            run = drive(run, journal, session.effects().table(), observer(session), _waits)
            session.workspace.close()
        do, reason = pending(run)
    return Turn(run, do, reason or "this run waits already; its options hold", resumed=True)


def _forget_what_was_judged(workspace: Workspace, run: Run, draft: Draft, text: str = "") -> None:
    """Begin anew from the incumbent, unless the draft holds what nobody has judged yet.

    What was judged is a commit of the run, kept or not.
    """
    started = run.started
    assert started is not None
    judged_shas = {row.sha for row in run.rows[-1:]} | {c.sha for c in run.candidates}
    texts = {workspace.repository.read(sha, started.kernel) for sha in judged_shas}
    texts.add(text.encode())
    if draft.path.is_file() and not draft.path.is_symlink() and draft.path.read_bytes() in texts:
        draft.reset(workspace.repository.read(run.incumbent_sha, started.kernel).decode())


def _append(run: Run, journal: Journal, event: Event) -> Run:
    after = advance(run, event)
    journal.append(event)
    return after


def _led(repository: Repository, run_id: str | None, *, done: bool = False) -> str:
    """The run that is meant; with `done` the latest of those that are over will do, too."""
    found = {n: run for n in find_runs(repository) if (run := _read(repository, n)) is not None}
    if run_id is not None:
        if run_id not in found:
            raise UsageError(
                f"no assistant leads a run {run_id} here; there are: {', '.join(found) or 'none'}"
            )
        return run_id
    waiting = [name for name, run in found.items() if run.phase is not Phase.DONE]
    if len(waiting) > 1:
        raise UsageError(f"several runs wait for an assistant: name one of {', '.join(waiting)}")
    if not waiting and found and done:
        return list(found)[-1]
    if not waiting:
        raise UsageError("no run waits for an assistant here: `tile-agent begin --kernel PATH`")
    return waiting[0]


def _read(repository: Repository, name: str) -> Run | None:
    """A run that an assistant leads; None for any other, or when its journal cannot be read."""
    run = read_run(repository, name)
    return run if run is not None and run.started and is_led(run) else None


def _open_on(repository: Repository, kernel: Path) -> str | None:
    """The run on that kernel which waits for an assistant."""
    for name in reversed(find_runs(repository)):
        run = _read(repository, name)
        if run is None or run.phase is Phase.DONE or run.started is None:
            continue
        if (repository.root / run.started.kernel).resolve() == kernel.resolve():
            return name
    return None


def _subject(workspace: Workspace, run: Run) -> Subject:
    """The incumbent as the playbook reads it, without a process that could run it."""
    started = run.started
    assert started is not None
    text = workspace.repository.read(run.incumbent_sha, started.kernel).decode()
    source = Source(text, started.kernel, run.timed_kernels)
    kernel_class = KernelClass(started.kernel_class)
    gpus = started.environment["gpus"]
    hardware = Hardware(sm=gpus[0]["sm"] if gpus else 0, interpreted=not gpus)
    return Subject(source, kernel_class, hardware, run.launches)


def _draft(repository: Repository, run: Run) -> Draft:
    started = run.started
    assert started is not None
    return Draft(runs_folder(repository) / started.run_id / "draft" / Path(started.kernel).name)


def _backend(run: Run) -> str:
    assert run.started is not None
    return run.started.backend


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
