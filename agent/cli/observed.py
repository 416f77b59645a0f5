"""What tests were seen to launch: for a person, and from the newest run on a kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.launches import ObservedLaunch

MOST = 8
"""Launches that a person is told of; JSON has all."""


@dataclass(frozen=True)
class SeenByRun:
    """What the newest run on a kernel saw the incumbent launch."""

    run_id: str
    """Empty where no run saw any."""
    launches: tuple[ObservedLaunch, ...] = ()

    def tuning(self) -> Iterator[str]:
        """What a cold tuning costs, a line a kernel; none where none was seen."""
        from agent.launches import tuning_costs

        for cost in tuning_costs(self.launches):
            yield f"tuning, as run {self.run_id} saw it: {cost}"


def by_newest_run(kernel: Path) -> SeenByRun:
    """Look into the journals of the kernel's repository, the newest first."""
    from agent.errors import UsageError
    from agent.repository import Repository
    from agent.runs import runs_on

    path = kernel.resolve()
    try:
        repository = Repository.open(path.parent)
    except UsageError:
        return SeenByRun("")
    seen = runs_on(repository, path.relative_to(repository.root).as_posix())
    return next(
        (SeenByRun(name, run.launches) for name, run in seen if run.launches), SeenByRun("")
    )


def lines(launches: Sequence[ObservedLaunch]) -> Iterator[str]:
    """Each launch with what it is given, below a line with its kernel, grid and test."""
    for launch in launches[:MOST]:
        grid = " x ".join(map(str, launch.grid))
        whose = f"by {launch.test}" if launch.test else "while the tests were imported"
        yield f"{launch.kernel}{f', grid {grid}' if grid else ''}, {whose}"
        yield from (f"  {line}" for line in launch.given())
    if len(launches) > MOST:
        yield f"and {len(launches) - MOST} more launches"
