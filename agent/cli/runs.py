"""`run` and `resume`: the loop to its end."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import typer

from agent.cli import completion, output
from agent.cli.observe import announce, watched
from agent.cli.plan import plan
from agent.cli.run_parameters import asking
from agent.cli.shared_options import Json, Quiet
from agent.cli.status import state_of
from agent.errors import BaselineFailed, Interrupted, UsageError

if TYPE_CHECKING:
    from agent.journal import Journal
    from agent.options import Request
    from agent.repository import Repository
    from agent.session import Session
    from agent.state import Run


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(asking(run, instead=plan))
    app.command()(resume)


def run(request: Request, yes: bool) -> None:
    """Make a kernel faster: branch, baseline, one optimization an iteration, keep or revert."""
    from agent.cli.still import opened_aloud
    from agent.session import begin

    with opened_aloud(request) as session:
        announce(session, ask=not yes)
        state, journal, made = begin(session)
        try:
            _drive(session, state, journal)
        except UsageError:
            session.workspace.undo_setup(made)
            output.forget()
            raise
        finally:
            journal.close()


def resume(
    run_id: str | None = typer.Argument(
        None, metavar="[RUN]", help="The latest when left out.", autocompletion=completion.runs
    ),
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Go on with a run that was interrupted."""
    output.use_json(as_json)
    output.be_quiet(quiet)
    from agent.assistant.turn import is_led, pending
    from agent.report.result import next_command
    from agent.repository import Repository
    from agent.runs import is_abandoned, taken_by
    from agent.session import reopened

    repository = Repository.open(Path.cwd())
    name = run_id or _latest(repository)
    with reopened(repository, name, output.progress) as (session, state, journal):
        if is_led(state):
            raise UsageError(
                f"an assistant leads this run: {next_command(state, pending(state)[0])}"
            )
        if is_abandoned(repository, state):
            other, branch = taken_by(repository, state), session.branch
            back = f": the branch comes back by `git branch {branch} {state.incumbent_sha[:12]}`"
            output.progress(
                f"note       branch {branch} is {f'that of {other} now' if other else 'gone'}, and "
                f"what is kept goes to refs/tile-agent/{session.workspace.run_id}/best"
                f"{'' if other else back}"
            )
        output.progress(f"resuming {session.workspace.run_id} in iteration {state.iteration}")
        _drive(session, state, journal)


# --- helpers ------------------------------------------------------------------------------------


def _drive(session: Session, state: Run, journal: Journal) -> None:
    """Drive a run to its end, show it, and leave with its exit code."""
    from agent.environment import describe
    from agent.loop import drive
    from agent.report.result import exit_code, to_result
    from agent.report.summary import summarize
    from agent.runs import table_path

    output.remember(run=session.workspace.run_id, branch=session.branch)
    try:
        with watched(session, state) as observe:
            state = drive(state, journal, session.effects().table(), observe)
    except Interrupted:
        session.workspace.close()
        output.progress(f"interrupted; go on with: tile-agent resume {session.workspace.run_id}")
        raise
    except BaselineFailed as problem:
        raise type(problem)(session.with_log(str(problem))) from problem
    assert state.started is not None
    result = to_result(state) | {
        "table": str(table_path(session.workspace.repository)),
        "journal": str(journal.path),
        "logs": str(session.logs),
    }
    summary = summarize(state, describe(state.started.environment))
    root = session.workspace.repository.root
    if not Path.cwd().resolve().is_relative_to(root.resolve()):
        summary = (
            f"{summary.rstrip()}\nThe commands are for another repository: cd {quote(str(root))}\n"
        )
    output.result(result, summary)
    raise typer.Exit(exit_code(state))


def _latest(repository: Repository) -> str:
    """The latest run that is not done."""
    from agent.runs import find_runs

    for name in reversed(find_runs(repository)):
        if state_of(repository, name)["standing"] in ("interrupted", "alive"):
            return name
    raise UsageError("no interrupted run here: see `tile-agent status`")
