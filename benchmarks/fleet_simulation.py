"""How well a fleet uses its GPUs: its own driver on Ray itself, with runs that only wait.

Each run waits as long as a recorded one took, scaled down, and tells what a real one tells, with a
bundle and a journal of a usual size; what comes home is written as ever. The slots are CPUs that
Ray is told of, and the runs ask for no GPU: for each run with a GPU Ray begins a process anew,
whose seconds a scaled run would count many times.

    python -m benchmarks.fleet_simulation [--kernels 200] [--gpus 64] [--scale 5]
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.cli.fleet import NOT_INSTALLED
from agent.environment import Environment
from agent.errors import ExitCode
from agent.fleet.cluster import Driver
from agent.fleet.home import Fleet, FleetOutcome, Home, KernelStanding, branch_of
from agent.fleet.jobs import Ended, KernelJob, Placed, Progressed, ResumePoint, Told
from agent.fleet.order import ordered
from agent.repository import Repository

PAGES = ("h200-triton-playbook.md", "h200-cutile-playbook.md")
_RESULTS = Path(__file__).parent.parent / "docs" / "results"
_TAKEN = re.compile(r"^\w+-bound, by its source; (\d+) s; ", re.MULTILINE)
_JOURNAL = b"x" * 60_000
_BUNDLE = b"x" * 20_000
_TELLS_S = 10.0
"""A run tells so often, unscaled, that its journal has grown."""


@dataclass(frozen=True)
class Figures:
    """What came of a simulation; seconds are unscaled."""

    total_s: float
    """Of all runs, one after the other."""
    makespan_s: float
    longest_s: float
    driver_cores: float
    """Processor seconds of the driver's process for each real second, at the scaled pace."""

    @property
    def speedup(self) -> float:
        """Over one GPU."""
        return self.total_s / self.makespan_s


def recorded_s() -> list[float]:
    """What the runs on the playbooks' pages took, in seconds."""
    return [
        float(each)
        for page in PAGES
        for each in _TAKEN.findall((_RESULTS / page).read_text(encoding="utf-8"))
    ]


def waiting(job: KernelJob, *_: Any) -> Iterator[Told]:
    """A run that waits; its words are how long, in seconds, and the scale."""
    length_s, scale = map(float, job.words)
    begin = time.monotonic()
    yield Placed("simulated", "no machine")
    point = ResumePoint(job.name, "", _JOURNAL, _BUNDLE)
    while (left_s := length_s / scale - (time.monotonic() - begin)) > 0:
        time.sleep(min(left_s, _TELLS_S / scale))
        yield Progressed(point, (time.monotonic() - begin) * scale)
    yield Ended(int(ExitCode.STOPPED), "", (time.monotonic() - begin) * scale, b"")


def _warm(gpus: int) -> None:
    """Have a worker process for each GPU, as real nodes start them side by side."""
    import ray

    def wait(until: float) -> None:
        time.sleep(max(0.0, until - time.time()))

    task = ray.remote(wait)
    ray.get([task.remote(time.time() + 5 + gpus) for _ in range(gpus)])


def simulate(lengths_s: Sequence[float], scale: float, *, longest: bool) -> Figures:
    """Drive a fleet whose runs take so long, on the GPUs that Ray has."""
    with tempfile.TemporaryDirectory(prefix="tile-agent-") as folder:
        repository = Repository(Path(folder), Path(folder) / ".git")
        repository.git("init", "--quiet")
        commit = ("commit", "--quiet", "--allow-empty", "--message=First")
        repository.git("-c", "user.name=a", "-c", "user.email=a@example.com", *commit)
        home = Home(repository, "fleet-1")
        jobs = [
            KernelJob(name, name, "triton", branch_of("fleet-1", name), words, ".", "", 0)
            for name, words in ((f"k{n}", (f"{s}", f"{scale}")) for n, s in enumerate(lengths_s))
        ]
        known = dict(zip((job.kernel for job in jobs), lengths_s, strict=True)) if longest else {}
        begun_on = Environment((), {}, None, "", "")
        placed = tuple(ordered(jobs, {}, known))
        fleet = Fleet("fleet-1", repository.head() or "", begun_on, placed, gpus_per_run=0)
        home.begin(fleet, [KernelStanding(job.name, job.kernel) for job in jobs])
        begin, cpu = time.monotonic(), time.process_time()
        Driver(home, lambda _: None, waiting).drive()
        wall_s, cpu_s = time.monotonic() - begin, time.process_time() - cpu
        assert all(each.outcome is FleetOutcome.ENDED for each in home.standings())
    return Figures(sum(lengths_s), wall_s * scale, max(lengths_s), cpu_s / wall_s)


def main() -> None:
    """Simulate, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kernels", type=int, default=16)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--scale", type=float, default=10.0, help="recorded seconds in a real one")
    parser.add_argument("--longest-first", action="store_true", help="in this order alone")
    given = parser.parse_args()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        sys.exit(NOT_INSTALLED)
    recorded = recorded_s()
    lengths_s = [recorded[n % len(recorded)] for n in range(given.kernels)]
    ray.init(
        address="local",
        num_cpus=given.gpus,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="warning",
    )
    _warm(given.gpus)
    for longest in (True,) if given.longest_first else (True, False):
        found = simulate(lengths_s, given.scale, longest=longest)
        print(
            f"{given.kernels} kernels on {given.gpus} GPUs, "
            f"{'longest first' if longest else 'in the order given'}: {found.speedup:.1f}x of one; "
            f"{found.total_s:.0f} s in all, the longest {found.longest_s:.0f} s, to the end "
            f"{found.makespan_s:.0f} s; the driver {found.driver_cores:.2f} cores at "
            f"{given.scale:g} times the pace",
            flush=True,
        )


if __name__ == "__main__":
    main()
