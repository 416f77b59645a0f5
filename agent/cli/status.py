"""`status` and `stop`: how the runs of a repository stand."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.cli import completion, output
from agent.cli.shared_options import Json
from agent.errors import UsageError

if TYPE_CHECKING:
    from agent.repository import Repository
    from agent.state import Run

STOP_TIMEOUT_S = 60.0
_IN_SHORT = (
    "run",
    "kernel",
    "branch",
    "standing",
    "phase",
    "iteration",
    "kept",
    "speedup",
    "exit_code",
    "next",
    "reason",
    "summary",
)
"""What is said of a run that is not the latest."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(status)
    app.command()(stop)


def status(
    run_id: str | None = typer.Argument(
        None, metavar="[RUN]", help="All when left out.", autocompletion=completion.runs
    ),
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Show the one that is alive, or RUN, until it ends."),
    ] = False,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Say in the JSON all of every run: older ones have a short record otherwise.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Say how the runs of this repository stand, and what to do next.

    The latest comes last. RUN shows that one alone.
    """
    output.use_json(as_json)
    from agent.repository import Repository
    from agent.runs import chosen_run, find_runs

    repository = Repository.open(Path.cwd())
    if follow:
        from agent.cli import follow as following

        raise typer.Exit(following.follow(repository, run_id))
    names = [chosen_run(repository, run_id)] if run_id else find_runs(repository)
    states = [state_of(repository, name) for name in names]
    lines = [f"{state['run']}: {state['summary']}; next: {state['next']}" for state in states]
    if not full:
        states[:-1] = [{name: s[name] for name in _IN_SHORT if name in s} for s in states[:-1]]
    output.result({"runs": states}, "\n".join(lines) or "no runs yet: tile-agent run --kernel PATH")


def stop(
    run_id: str | None = typer.Argument(
        None, metavar="[RUN]", help="The one that is alive.", autocompletion=completion.runs
    ),
    as_json: Json = False,
) -> None:
    """Ask a run that is alive to end as Ctrl-C would end it: cleanly, to be resumed."""
    output.use_json(as_json)
    from agent.repository import Repository
    from agent.runs import chosen_run, find_runs

    repository = Repository.open(Path.cwd())
    names = [chosen_run(repository, run_id)] if run_id else find_runs(repository)
    for name in reversed(names):
        owner = _owner(repository, name)
        if owner is None:
            continue
        if not interrupt(owner.pid, partial(_ended, repository, name)):
            raise UsageError(f"run {name} (pid {owner.pid}) has not ended yet: kill it if it must")
        output.result({"stopped": name}, f"stopped {name}; go on with: tile-agent resume {name}")
        return
    which = "no such run" if run_id else "no run"
    raise UsageError(f"{which} is alive here: see `tile-agent status`")


def interrupt(pid: int, ended: Callable[[], bool]) -> bool:
    """End a process as Ctrl-C would; whether what it held is free within a minute."""
    os.kill(pid, signal.SIGINT)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while not (over := ended()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return over


def state_of(repository: Repository, name: str) -> dict[str, Any]:
    """A run as `status` shows it: where it stands, and what to do next."""
    from agent.assistant.turn import is_led, pending
    from agent.errors import JournalError, TransitionError
    from agent.journal import read, replay
    from agent.report.result import iteration_of, next_command, to_result
    from agent.runs import has_lost_branch, is_abandoned, runs_folder, taken_by

    path = runs_folder(repository) / name / "journal.jsonl"
    try:
        state = replay([entry.event for entry in read(path)])
    except (JournalError, TransitionError) as problem:
        mend = f"rm -r {path.parent.relative_to(repository.root)}"
        return {"run": name, "standing": "damaged", "summary": str(problem), "next": mend}
    owner = _owner(repository, name)
    done = state.phase.value == "done"
    standing = "done" if done else "alive" if owner else "interrupted"
    command, why = f"tile-agent resume {name}", ""
    if owner:
        command = f"wait, or tile-agent stop {name}"
    elif done and state.started:
        command = next_command(state, "done")
        if state.kept and has_lost_branch(repository, state):
            branch, best = state.started.branch, f"refs/tile-agent/{name}/best"
            command = f"git log -p {state.started.origin_sha[:12]}..{best}"
            why = f"{_gone(repository, state)}: `git branch NEW {best}` makes another"
    elif state.started and is_led(state):
        standing = "waiting for the assistant"
        do, why = pending(state)
        command = next_command(state, do, whole=True)  # who asks may have forgotten everything
    elif state.started and is_abandoned(repository, state):
        branch, kernel = state.started.branch, shlex.quote(state.started.kernel)
        standing, command = "abandoned", f"tile-agent run --kernel {kernel}"
        back = f"git branch {branch} {state.incumbent_sha[:12]} && tile-agent resume {name}"
        how = f"tile-agent resume {name}" if taken_by(repository, state) else back
        why = f"{_gone(repository, state)}; `{how}` goes on with it"
    elif state.started and not done:
        why = f"`git branch -D {state.started.branch}` abandons it"
    summary = f"{standing}, iteration {iteration_of(state)}, {len(state.kept)} kept"
    return to_result(state) | {
        "run": name,
        "standing": standing,
        "kept": len(state.kept),
        "next": command,
        "reason": why,
        "summary": f"{summary}; {why}" if why else summary,
    }


def _gone(repository: Repository, run: Run) -> str:
    from agent.runs import taken_by

    assert run.started is not None
    other = taken_by(repository, run)
    return f"its branch {run.started.branch} is {f'that of {other} now' if other else 'gone'}"


def _ended(repository: Repository, name: str) -> bool:
    return _owner(repository, name) is None


def _owner(repository: Repository, name: str) -> Any:
    """The process that drives a run; None when none does."""
    from agent.errors import JournalError, TransitionError
    from agent.journal import read, replay
    from agent.runs import runs_folder
    from agent.workspace import lock_owner

    path = runs_folder(repository) / name / "journal.jsonl"
    try:
        started = replay([entry.event for entry in read(path)]).started
    except (JournalError, TransitionError):
        return None
    owner = lock_owner(repository, started.kernel) if started else None
    return owner if owner and owner.run_id == name else None
