"""What a person sees of a run while it goes on: the plan, the lines, the table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import typer

from agent.cli import output
from agent.errors import Interrupted, UsageError

if TYPE_CHECKING:
    from agent.events import Event
    from agent.loop import Observer
    from agent.session import Session
    from agent.state import Run

NOT_BEGUN = "not begun; nothing was changed"
FEWER_TESTS = (
    "each candidate has the tests run, too; fewer: --correctness-k EXPRESSION, as 'captured' of a "
    "run with --capture"
)


def announce(session: Session, *, ask: bool) -> None:
    """Say what is going to happen, and ask a person who can answer; a pipe may have answered.

    Raises:
        Interrupted: the answer was no.
    """
    for line in _plan(session):
        output.progress(line)
    if ask and output.interactive():
        try:
            agreed = typer.confirm("Begin?", default=True, err=True)
        except typer.Abort:  # the end of the input is no answer
            agreed = False
        if not agreed:
            raise Interrupted(NOT_BEGUN)
    elif ask and output.answered().lower() in ("n", "no"):
        raise Interrupted(NOT_BEGUN)


def observer(session: Session) -> Observer:
    """Shows each event and keeps the table up to date."""
    from agent.events import Finished, Settled, Stopped, StopReason
    from agent.report import table
    from agent.report.escalation import escalation
    from agent.report.progress import Commentary
    from agent.runs import table_path
    from agent.store.recall import record

    commentary, remembers = Commentary(), session.options.remember

    def observe(run: Run, event: Event) -> None:
        nonlocal remembers
        for line in commentary.lines(run, event):
            output.progress(line)
        if run.rows:
            session.folder.mkdir(parents=True, exist_ok=True)  # `git clean` may have been here
            table.write(session.folder / "perf_results.md", run.rows)
            table.write(table_path(session.workspace.repository), run.rows)
        if remembers and isinstance(event, Settled | Finished):
            journal = session.folder / "journal.jsonl"
            if problem := record(journal, session.workspace.repository):
                remembers = False  # said once; no run ends by it
                output.progress(f"warning    nothing of this run is remembered: {problem}")
        if isinstance(event, Stopped) and event.reason is StopReason.ESCALATED:
            report = session.folder / "escalation.md"
            report.write_text(escalation(run), encoding="utf-8")
            output.progress(f"report     {report}")

    output.remember(run=session.workspace.run_id, branch=session.branch)
    return observe


@contextmanager
def watched(session: Session, run: Run) -> Iterator[Observer]:
    """The observer; while the block lasts, a terminal shows where the run is, and who reads lines
    is told where it is silent for long.

    Args:
        session: what the run needs.
        run: as it stands.
    """
    observe = observer(session)
    if not output.may_draw():
        with _told(session, run, observe) as telling:
            yield telling
        return
    from agent.cli.live import live_view

    with live_view(run, session.folder) as seen:

        def both(run: Run, event: Event) -> None:
            seen.saw(run)
            observe(run, event)

        yield both


@contextmanager
def _told(session: Session, run: Run, observe: Observer) -> Iterator[Observer]:
    """The observer, with a line where the run says nothing for long."""
    import time

    from agent.cli.still import Still
    from agent.report.view import Moment, in_a_line
    from agent.runs import activity
    from agent.state import Phase

    still, seen, hinted = Still(), [(run, time.monotonic())], False

    def told(run: Run, event: Event) -> None:
        seen[0] = run, time.monotonic()
        observe(run, event)
        still.shown()

    def tell() -> None:
        nonlocal hinted
        run, since = seen[0]
        moment = Moment(time.monotonic() - since, activity(session.folder, run))
        output.progress(f"still      {in_a_line(run, moment)}")
        if run.phase is Phase.BASELINE and not hinted and not session.plan.correctness_k:
            output.progress(f"           {FEWER_TESTS}")
            hinted = True

    with still.telling(tell):
        yield told


def _plan(session: Session) -> list[str]:
    """What is going to happen, in a few lines."""
    from agent.environment import describe, describe_sandbox
    from agent.options import Sandbox
    from agent.runs import replaced_table

    kinds = session.classification
    tests = session.plan
    options = session.options
    off = options.sandbox is Sandbox.OFF
    kernels = session.target.kernels  # other files may launch them, and the tests too
    launched = [kernel.name for kernel in kernels if kernel.launched_from]
    named = launched or [kernel.name for kernel in kernels]
    budget = f", {options.time_budget_s:.0f} s in all" if options.time_budget_s else ""
    replaced = replaced_table(session.workspace.repository, session.workspace.run_id)
    return [
        f"kernel     {session.target.kernel} ({session.target.backend}: {', '.join(named)}; "
        f"{kinds.kernel_class.value}, about {kinds.flop_per_byte:.3g} FLOP/B)",
        f"tests      {len(tests.correctness)} correctness, {len(tests.perf)} perf "
        f"from {', '.join((*tests.files, *tests.benches))}",
        f"machine    {describe(session.environment.to_json())}",
        f"latency    {session.latency_meaning}",
        f"confined   {describe_sandbox(session.environment.sandbox, off=off)}",
        f"branch     {session.branch} from {session.origin_sha[:12]}",
        f"limits     {options.max_iterations} iterations of at most "
        f"{options.iteration_timeout_s:.0f} s{budget}",
        *_remembered(session),
        *(f"note       {note}" for note in (*session.notes, *replaced)),
    ]


def _remembered(session: Session) -> Iterator[str]:
    """What the user's store knows of kernels like this one; why it cannot tell, its use says."""
    if not session.options.remember:
        return
    from agent.backends import BACKENDS
    from agent.store.recall import experience
    from agent.syntax import Source

    kernel, gpu = session.target.kernel, session.environment.gpu
    text = session.workspace.repository.read(session.origin_sha, kernel).decode()
    structure = BACKENDS[session.target.backend].structure(Source(text, kernel))
    with suppress(UsageError):
        known = experience(session.target.backend, structure, gpu.name if gpu else "")
        yield f"remembered {len(known.tallies)} optimizations on kernels like this: {known.about}"
