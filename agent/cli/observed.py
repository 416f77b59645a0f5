"""What tests were seen to launch: for a person, and from the newest run on a kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.launches import ObservedLaunch
    from agent.repository import Repository

MOST = 8
"""Launches that a person is told of; JSON has all."""


@dataclass(frozen=True)
class SeenByRun:
    """What the newest run saw launched of a kernel's file as it is now."""

    run_id: str
    """Empty where no run saw any."""
    launches: tuple[ObservedLaunch, ...] = ()
    of_another_text: str = ""
    """Where it is empty: the newest run that saw what another version of the file launches."""

    def tuning(self) -> Iterator[str]:
        """What a cold tuning costs, a line a kernel; none where none was seen."""
        from agent.launches import tuning_costs

        for cost in tuning_costs(self.launches):
            yield f"tuning, as run {self.run_id} saw it: {cost}"


def by_newest_run(kernel: Path) -> SeenByRun:
    """Look into the journals of the kernel's repository, the newest first.

    What another version of the file launched says nothing of this one: its sizes may be others.
    """
    from agent.errors import UsageError
    from agent.repository import Repository
    from agent.runs import runs_on

    path = kernel.resolve()
    try:
        repository = Repository.open(path.parent)
    except UsageError:
        return SeenByRun("")
    name = path.relative_to(repository.root).as_posix()
    blob = repository.ask("hash-object", "--", name).text
    other = ""
    for run_id, run in runs_on(repository, name):
        origin = run.started.origin_sha if run.started else ""
        of_origin = run.baseline.launches if run.baseline else ()
        for sha, launches in ((origin, of_origin), (run.incumbent_sha, run.launches)):
            if launches and _blob_of(repository, sha, name) == blob:
                return SeenByRun(run_id, launches)
        if run.launches:
            other = other or run_id
    return SeenByRun("", of_another_text=other)


def _blob_of(repository: Repository, sha: str, path: str) -> str | None:
    """The file in a commit; None where git has it no longer."""
    from agent.errors import GitError

    try:
        found = repository.entry(sha, path)
    except GitError:
        return None
    return found.blob if found is not None else None


def lines(launches: Sequence[ObservedLaunch]) -> Iterator[str]:
    """Each launch with what it is given, below a line with its kernel, grid and test."""
    for launch in launches[:MOST]:
        grid = " x ".join(map(str, launch.grid))
        whose = f"by {launch.test}" if launch.test else "while the tests were imported"
        yield f"{launch.kernel}{f', grid {grid}' if grid else ''}, {whose}"
        yield from (f"  {line}" for line in launch.given())
    if len(launches) > MOST:
        yield f"and {len(launches) - MOST} more launches"
