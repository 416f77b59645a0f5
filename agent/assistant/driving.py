"""`begin`, `try` and `finish`: what drives the loop, as far as the next turn of the assistant."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from agent.assistant.drafts import (
    draft_of,
    forget_what_was_judged,
    judged_texts,
    replace_draft,
)
from agent.assistant.found import led, open_on
from agent.assistant.going_on import insist_same
from agent.assistant.handed_over import handed_over
from agent.assistant.leaving import WITHOUT_BASELINE, give_up, take_back
from agent.assistant.turn import BEGIN, DONE, EDIT, NEXT, TRY, Turn, append, pending
from agent.errors import BaselineFailed, UsageError
from agent.events import Skipped, Stopped, StopReason
from agent.journal import Journal
from agent.loop import Observer, drive
from agent.options import ASSISTANT, Request
from agent.proposers.draft import Draft
from agent.repository import Repository
from agent.session import Session, begin, held, opened, reopened
from agent.settings import Setting
from agent.state import Phase, Run, stop_reason
from agent.workspace import Workspace

Observing = Callable[[Session], Observer]
"""Makes what is told of each event of a session."""
NONE: Mapping[str, str] = MappingProxyType({})
Say = Callable[[str], None]
"""Told in a line what is waited for."""


def begin_run(
    request: Request,
    observer: Observing,
    announce: Callable[[Session], None],
    say: Say,
    given: Collection[Setting] = (),
) -> Turn:
    """Set up, record the baseline, and let whoever comes before the assistant do its part.

    A run on this kernel that waits for an assistant is gone on with instead.

    Args:
        request: what the user asked for.
        observer: is told of each event.
        announce: is told of the session before anything is written.
        say: is told in a line what is waited for, and which run is gone on with.
        given: the options that were named, which a run that is gone on with has to have.

    Raises:
        UsageError: something is missing or wrong; nothing has been changed.
    """
    repository = Repository.open(request.kernel.absolute().parent)
    if (open_run := open_on(repository, request.kernel)) is not None:
        return _continued(repository, open_run, request, given, observer, say)
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


def attempt(
    repository: Repository,
    run_id: str | None,
    message: str,
    observer: Observing,
    say: Say,
    text: str | None = None,
    variants: Mapping[str, str] = NONE,
) -> Turn:
    """Judge the draft; or bring an iteration that was interrupted to its end.

    Args:
        repository: the user's.
        run_id: the run; None: the one that an assistant leads here.
        message: the hypothesis.
        observer: is told of each event.
        say: is told in a line what is waited for.
        text: takes the place of the draft's; None: the draft as it stands.
        variants: name -> text of what is to be tried beside the draft, with other values: the one
            that looks best is judged.

    Raises:
        UsageError: the draft cannot be a candidate, or none is asked for; nothing is recorded.
    """
    name = led(repository, run_id)
    with held(repository, name) as (workspace, run, _):
        do, reason = pending(run)
        resumed = do == TRY
        draft = draft_of(repository, run)
        proposer, unjudged = None, ""
        if resumed:
            say(f"resumed    {reason}")
            unjudged = _unjudged(workspace, run, draft, text, variants)
        if do == NEXT:
            if text is not None:
                replace_draft(workspace, run, draft, text)
            proposer = handed_over(workspace, run, draft, message, variants)
        elif not resumed:
            return Turn(run, do, reason)
    with reopened(repository, name, say) as (session, run, journal):
        began, first = run.iteration, run
        effects = session.effects(**({ASSISTANT: proposer} if proposer else {}))

        def judged_once(now: Run) -> bool:
            at_rest = now.phase is Phase.PROPOSE and (now.iteration > began or now.offer is None)
            is_mendable = now.phase is Phase.REPAIR and now is not first
            return now.phase is Phase.DONE or at_rest or is_mendable

        run = drive(run, journal, effects.table(), observer(session), judged_once)
        judged = {*judged_texts(session.workspace, first)}
        if proposer and run.phase is not Phase.REPAIR:
            judged |= {*proposer.texts}
        forget_what_was_judged(session.workspace, run, draft, judged, for_next=True)
        session.workspace.close()
        last = journal.events[-1]
    do, reason = pending(run)
    is_mendable = run.phase is Phase.REPAIR and do == NEXT
    return Turn(
        run,
        EDIT if is_mendable else do,
        reason,
        draft=draft.path if is_mendable else None,
        row=run.rows[-1] if run.iteration > began else None,
        skipped=last if isinstance(last, Skipped) else None,
        resumed=resumed,
        unjudged=unjudged,
    )


def _unjudged(
    workspace: Workspace, run: Run, draft: Draft, text: str | None, variants: Mapping[str, str]
) -> str:
    """What is not the candidate under judgement, nor code that is known; words that say so."""
    started, known = run.started, {text.encode() for text in judged_texts(workspace, run)}
    assert started is not None
    known.add(workspace.repository.read(run.incumbent_sha, started.kernel))
    instead = "was not judged, but the candidate that was handed in before"
    if text is None and draft.path.is_file() and draft.path.read_bytes() not in known:
        return f"the draft as it stands {instead}; it stays as it is"
    given = [each for each in (text, *variants.values()) if each is not None]
    if any(each.encode() not in known for each in given):
        return f"what is handed over now {instead}: hand it over again"
    return ""


def finish_run(repository: Repository, run_id: str | None, observer: Observing, say: Say) -> Turn:
    """Compare origin and best afresh and end the run; of one that is done, say so again.

    One that has no baseline yet is taken back, as where a baseline fails.

    Raises:
        UsageError: there is no such run, or somebody drives it.
    """
    name = led(repository, run_id, done=True)
    with held(repository, name) as (workspace, run, journal):
        do, reason = pending(run)
        if do == DONE:
            return Turn(run, do, reason)
        if run.phase in WITHOUT_BASELINE:
            return Turn(run, BEGIN, take_back(workspace, run), taken_back=True)
        run = _stopped(workspace, run, journal)
    with reopened(repository, name, say) as (session, run, journal):
        effects, observe = session.effects(), observer(session)
        run = drive(run, journal, effects.table(), observe, _between)
        if run.phase is not Phase.DONE:  # an iteration had been interrupted
            run = _stopped(session.workspace, run, journal)
            run = drive(run, journal, effects.table(), observe)
    return Turn(run, DONE)


def _stopped(workspace: Workspace, run: Run, journal: Journal) -> Run:
    """The run at its end, as far as it waits for the assistant; else as it is."""
    reason = stop_reason(run) or StopReason.ASKED
    if run.phase is Phase.REPAIR:
        draft = draft_of(workspace.repository, run)
        run = give_up(workspace, run, journal, draft, reason.value)
    if run.phase is not Phase.PROPOSE:
        return run
    return append(run, journal, Stopped(stop_reason(run) or reason))


def _waits(run: Run) -> bool:
    """Whether the run is done, or it is the assistant's turn."""
    return run.phase is Phase.DONE or (run.phase is Phase.PROPOSE and run.proposer == ASSISTANT)


def _between(run: Run) -> bool:
    return run.phase in (Phase.PROPOSE, Phase.REPAIR, Phase.DONE)


def _continued(
    repository: Repository,
    run_id: str,
    request: Request,
    given: Collection[Setting],
    observer: Observing,
    say: Say,
) -> Turn:
    with held(repository, run_id) as (_, run, _journal):
        do, reason = pending(run)
        assert run.started is not None
        insist_same(repository, run.started, request, given)
    say(f"goes on   with run {run_id} on branch {run.started.branch}, by the options it began with")
    if do == BEGIN:
        with reopened(repository, run_id, say) as (session, run, journal):
            run = drive(run, journal, session.effects().table(), observer(session), _waits)
            session.workspace.close()
        do, reason = pending(run)
    return Turn(run, do, reason or "this run waits already; its options hold", resumed=True)
