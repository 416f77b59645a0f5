"""Which of the runs of a repository is meant."""

from __future__ import annotations

from pathlib import Path

from agent.assistant.turn import is_led
from agent.errors import UsageError
from agent.repository import Repository
from agent.runs import find_runs, read_run
from agent.state import Phase, Run


def led(repository: Repository, run_id: str | None, *, done: bool = False) -> str:
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


def open_on(repository: Repository, kernel: Path) -> str | None:
    """The run on that kernel which waits for an assistant."""
    for name in reversed(find_runs(repository)):
        run = _read(repository, name)
        if run is None or run.phase is Phase.DONE or run.started is None:
            continue
        if (repository.root / run.started.kernel).resolve() == kernel.resolve():
            return name
    return None
