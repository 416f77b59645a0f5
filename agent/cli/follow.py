"""`status --follow`: a run that goes on in another terminal, from its journal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from agent.cli import output
from agent.environment import describe
from agent.errors import ExitCode, Interrupted, UsageError
from agent.journal import JournalLine, read
from agent.options import ASSISTANT
from agent.report.progress import Commentary
from agent.report.result import exit_code, to_result
from agent.report.summary import summarize
from agent.repository import Repository
from agent.runs import chosen_run, find_runs, read_run, runs_folder
from agent.state import Phase, Run
from agent.transitions import advance
from agent.workspace import lock_owner

POLL_S = 0.3


def follow(repository: Repository, run_id: str | None) -> ExitCode:
    """Show a run until it ends: what has happened, then what happens, then its summary.

    Args:
        repository: the user's.
        run_id: of a run; the one that is alive when left out.

    Returns:
        The exit code of the run.

    Raises:
        Interrupted: it was interrupted; how to go on with it.
        UsageError: there is no such run, or it was taken back meanwhile.
    """
    name = chosen_run(repository, run_id) if run_id else _alive(repository)
    folder = runs_folder(repository) / name
    lines, commentary, run = _lines(repository, name), Commentary(), Run()
    with ExitStack() as stack:
        seen = None
        for line in lines:
            run = advance(run, line.event)
            if seen is None and output.may_draw() and run.phase is not Phase.DONE:
                from agent.cli.live import live_view

                seen = stack.enter_context(live_view(run, folder))
            if seen is not None:
                seen.saw(run, _phase_began_s(repository, run, line))
            for text in commentary.lines(run, line.event):
                output.line(text)
    if run.phase is not Phase.DONE:
        raise Interrupted(f"run {name} was interrupted; go on with: tile-agent resume {name}")
    assert run.started is not None
    output.result(to_result(run), summarize(run, describe(run.started.environment)))
    return exit_code(run)


def _alive(repository: Repository) -> str:
    """The run that goes on, the newest where there are several."""
    for name in reversed(find_runs(repository)):
        run = read_run(repository, name)
        if run is not None and _goes_on(repository, name, run):
            return name
    raise UsageError("no run is alive here: see `tile-agent status`")


def _lines(repository: Repository, name: str) -> Iterator[JournalLine]:
    """The lines of the journal as they come, until the run is done or nobody drives it.

    Raises:
        UsageError: the journal is gone, and so is the run.
    """
    path = runs_folder(repository) / name / "journal.jsonl"
    run, told, last = Run(), 0, None
    while True:
        goes_on = _goes_on(repository, name, run)
        if (size := _size(path)) != last:  # what ended the run was written before it ended
            last = size
            for line in read(path)[told:] if size else ():
                told += 1
                run = advance(run, line.event)
                yield line
            continue
        if run.phase is Phase.DONE or not goes_on:
            break
        time.sleep(POLL_S)
    if not last:
        raise UsageError(
            f"run {name} was taken back, as a run is whose baseline fails: the terminal that it "
            "ran in says why"
        )


def _goes_on(repository: Repository, name: str, run: Run) -> bool:
    """Whether somebody drives a run, or an assistant may."""
    if run.phase is Phase.DONE or run.started is None:
        return False
    owner = lock_owner(repository, run.started.kernel)
    return ASSISTANT in run.options.proposers or (owner is not None and owner.run_id == name)


def _phase_began_s(repository: Repository, run: Run, line: JournalLine) -> float:
    """When the present phase began, or its process, in a run that was resumed."""
    assert run.started is not None
    owner = lock_owner(repository, run.started.kernel)
    return max(line.time_s, owner.started if owner else 0.0)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
