"""In which order the kernels of a fleet are handed to Ray."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from agent.errors import UsageError
from agent.fleet.home import FleetOutcome, Home, fleets_folder
from agent.fleet.jobs import KernelJob
from agent.repository import Repository


def ordered(
    jobs: Sequence[KernelJob], shares: Mapping[str, float], known_s: Mapping[str, float]
) -> list[KernelJob]:
    """Jobs in the order in which they are to begin.

    What takes most of the workload comes first, for hours that run out are then spent where they
    gain most. Of equal shares the longest run comes first: begun last, it would be waited for by
    all other GPUs. One whose length nobody knows may be the longest. Else the order stays.

    Args:
        jobs: to be ordered.
        shares: kernel -> share of the workload's time, from 0 to 1; none is 0.
        known_s: kernel -> seconds that its run took before.
    """
    return sorted(
        jobs, key=lambda job: (-shares.get(job.kernel, 0.0), -known_s.get(job.kernel, math.inf))
    )


def known_lengths(repository: Repository) -> dict[str, float]:
    """Kernel -> seconds for which its run held a GPU in the latest fleet that ended it."""
    found = {}
    for folder in sorted(fleets_folder(repository).glob("*/")):
        try:
            standings = Home(repository, folder.name).standings()
        except UsageError:  # of another version: only the order hangs on it
            continue
        for standing in standings:
            if standing.outcome is FleetOutcome.ENDED:
                found[standing.kernel] = standing.spent_s
    return found
