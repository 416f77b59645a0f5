"""`run`, `resume`, `status`, `stop`: the loop and what became of it."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from agent.cli import output
from agent.cli.options import CompareOn, Json, Kernel, Only, Python, Tests
from agent.errors import Interrupted, UsageError

if TYPE_CHECKING:
    from agent.events import Event
    from agent.journal import Journal
    from agent.repository import Repository
    from agent.setup import Session
    from agent.state import Run

STOP_TIMEOUT_S = 60.0


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(run)
    app.command()(resume)
    app.command()(status)
    app.command()(stop)


def run(
    kernel: Kernel,
    tests: Tests = None,
    correctness_k: str | None = typer.Option(
        None, help="pytest -k expression for the correctness tests."
    ),
    perf_k: str | None = typer.Option(None, help="pytest -k expression for the perf tests."),
    branch: str | None = typer.Option(
        None, help="Name of the branch; tile-agent/<kernel>-<date> when left out."
    ),
    only: Only = None,
    compare_on: CompareOn = None,
    max_iterations: int = typer.Option(25, min=1, help="Stop after so many iterations."),
    patience: int = typer.Option(
        2, min=1, help="Stop after so many iterations in a row without improvement."
    ),
    keep_going: bool = typer.Option(
        False, "--keep-going", help="Go on after an improvement under 2 %."
    ),
    time_budget_s: float | None = typer.Option(None, min=0, help="Stop after so many seconds."),
    iteration_timeout_s: float = typer.Option(
        600.0, min=1, help="Give one iteration at most so many seconds."
    ),
    python: Python = sys.executable,
    yes: bool = typer.Option(False, "--yes", "-y", help="Begin without asking."),
    as_json: Json = False,
) -> None:
    """Make a kernel faster: branch, baseline, one optimization an iteration, keep or revert."""
    output.use_json(as_json)
    from agent import setup
    from agent.events import Options

    for name, value in (
        ("--time-budget-s", time_budget_s),
        ("--iteration-timeout-s", iteration_timeout_s),
    ):
        if value is not None and not math.isfinite(value):
            raise UsageError(f"{name} {value} is no number of seconds: leave it out for no limit")
    options = Options(
        max_iterations=max_iterations,
        patience=patience,
        keep_going=keep_going,
        time_budget_s=time_budget_s,
        iteration_timeout_s=iteration_timeout_s,
        only=_known(only or []),
        compare_on=tuple(compare_on or ()),
    )
    request = setup.Request(
        kernel=kernel,
        python=python,
        tests=tuple(tests or ()),
        correctness_k=correctness_k,
        perf_k=perf_k,
        branch=branch,
        options=options,
    )
    with setup.opened(request) as session:
        for line in _plan(session):
            output.progress(line)
        if output.interactive() and not yes:
            typer.confirm("Begin?", default=True, abort=True, err=True)
        state, journal, made = setup.begin(session)
        try:
            _drive(session, state, journal)
        except UsageError:
            session.workspace.undo_setup(made)
            output.forget()
            raise
        finally:
            journal.close()


def resume(
    run_id: str | None = typer.Argument(None, metavar="[RUN]", help="The latest when left out."),
    as_json: Json = False,
) -> None:
    """Go on with a run that was interrupted."""
    output.use_json(as_json)
    from agent import setup
    from agent.repository import Repository

    repository = Repository.open(Path.cwd())
    with setup.reopened(repository, run_id or _latest(repository)) as (session, state, journal):
        output.progress(f"resuming {session.workspace.run_id} in iteration {state.iteration}")
        _drive(session, state, journal)


def status(
    run_id: str | None = typer.Argument(None, metavar="[RUN]", help="All when left out."),
    as_json: Json = False,
) -> None:
    """Say how the runs of this repository stand, and what to do next."""
    output.use_json(as_json)
    from agent.repository import Repository
    from agent.setup import find_runs

    repository = Repository.open(Path.cwd())
    known = find_runs(repository)
    if run_id is not None and run_id not in known:
        raise UsageError(f"there is no run {run_id} here; there are: {', '.join(known) or 'none'}")
    states = [_state_of(repository, name) for name in ([run_id] if run_id else known)]
    lines = [f"{state['run']}: {state['summary']}; next: {state['next']}" for state in states]
    output.result({"runs": states}, "\n".join(lines) or "no runs yet: tile-agent run --kernel PATH")


def stop(
    run_id: str | None = typer.Argument(None, metavar="[RUN]", help="The one that is alive."),
    as_json: Json = False,
) -> None:
    """Ask a run that is alive to end as Ctrl-C would end it: cleanly, to be resumed."""
    output.use_json(as_json)
    from agent.repository import Repository
    from agent.setup import find_runs

    repository = Repository.open(Path.cwd())
    for name in reversed([run_id] if run_id else find_runs(repository)):
        owner = _owner(repository, name)
        if owner is None:
            continue
        os.kill(owner.pid, signal.SIGINT)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while _owner(repository, name) and time.monotonic() < deadline:
            time.sleep(0.1)
        if _owner(repository, name):
            raise UsageError(f"run {name} (pid {owner.pid}) has not ended yet: kill it if it must")
        output.result({"stopped": name}, f"stopped {name}; go on with: tile-agent resume {name}")
        return
    raise UsageError("no such run is alive here: see `tile-agent status`")


# --- helpers ------------------------------------------------------------------------------------


def _drive(session: Session, state: Run, journal: Journal) -> None:
    """Drive a run to its end, show it, and leave with its exit code."""
    from agent.environment import describe
    from agent.loop import drive
    from agent.report import progress, table
    from agent.report.result import exit_code, to_result
    from agent.report.summary import summarize
    from agent.setup import table_path

    def observe(run: Run, event: Event) -> None:
        for line in progress.lines(run, event):
            output.progress(line)
        if run.rows:
            session.folder.mkdir(parents=True, exist_ok=True)  # `git clean` may have been here
            table.write(session.folder / "perf_results.md", run.rows)
            table.write(table_path(session.workspace.repository), run.rows)

    output.remember(run=session.workspace.run_id, branch=session.branch)
    try:
        state = drive(state, journal, session.effects().table(), observe)
    except Interrupted:
        session.workspace.close()
        output.progress(f"interrupted; go on with: tile-agent resume {session.workspace.run_id}")
        raise
    assert state.started is not None
    result = to_result(state) | {
        "table": str(table_path(session.workspace.repository)),
        "journal": str(journal.path),
        "logs": str(session.logs),
    }
    output.result(result, summarize(state, describe(state.started.environment)))
    raise typer.Exit(exit_code(state))


def _plan(session: Session) -> list[str]:
    """What is going to happen, in a few lines."""
    from agent.environment import describe

    kinds = session.classification
    tests = session.plan
    options = session.options
    launched = [kernel.name for kernel in session.target.kernels if kernel.launched_from]
    budget = f", {options.time_budget_s:.0f} s in all" if options.time_budget_s else ""
    return [
        f"kernel     {session.target.kernel} ({session.target.backend}: {', '.join(launched)}; "
        f"{kinds.kernel_class.value}, about {kinds.flop_per_byte:.3g} FLOP/B)",
        f"tests      {len(tests.correctness)} correctness, {len(tests.perf)} perf "
        f"from {', '.join(tests.files)}",
        f"machine    {describe(session.environment.to_json())}",
        f"latency    {session.latency_meaning}",
        f"branch     {session.branch} from {session.origin_sha[:12]}",
        f"limits     {options.max_iterations} iterations of at most "
        f"{options.iteration_timeout_s:.0f} s{budget}",
        *(f"note       {note}" for note in session.notes),
    ]


def _known(names: list[str]) -> tuple[str, ...]:
    from agent.playbook import get

    return tuple(get(name).name for name in names)


def _latest(repository: Repository) -> str:
    """The latest run that is not done."""
    from agent.setup import find_runs

    for name in reversed(find_runs(repository)):
        if _state_of(repository, name)["standing"] in ("interrupted", "alive"):
            return name
    raise UsageError("no interrupted run here: see `tile-agent status`")


def _state_of(repository: Repository, name: str) -> dict[str, Any]:
    from agent.errors import JournalError, TransitionError
    from agent.journal import read, replay
    from agent.report.result import kept_at, to_result
    from agent.setup import runs_folder

    path = runs_folder(repository) / name / "journal.jsonl"
    try:
        state = replay([entry.event for entry in read(path)])
    except (JournalError, TransitionError) as problem:
        mend = f"rm -r {path.parent.relative_to(repository.root)}"
        return {"run": name, "standing": "damaged", "summary": str(problem), "next": mend}
    owner = _owner(repository, name)
    done = state.phase.value == "done"
    standing = "done" if done else "alive" if owner else "interrupted"
    command = f"tile-agent resume {name}"
    if owner:
        command = f"wait, or tile-agent stop {name}"
    elif done and state.started:
        command = f"git log -p {state.started.origin_sha[:12]}..{kept_at(state)}"
    kept = len(state.kept)
    return to_result(state) | {
        "run": name,
        "standing": standing,
        "next": command,
        "summary": f"{standing}, iteration {state.iteration}, {kept} kept",
    }


def _owner(repository: Repository, name: str) -> Any:
    """The process that drives a run; None when none does."""
    from agent.errors import JournalError, TransitionError
    from agent.journal import read, replay
    from agent.setup import runs_folder
    from agent.workspace import lock_owner

    path = runs_folder(repository) / name / "journal.jsonl"
    if not path.exists():
        raise UsageError(f"there is no run {name} here: see `tile-agent status`")
    try:
        started = replay([entry.event for entry in read(path)]).started
    except (JournalError, TransitionError):
        return None
    owner = lock_owner(repository, started.kernel) if started else None
    return owner if owner and owner.run_id == name else None
