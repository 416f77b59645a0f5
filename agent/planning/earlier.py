"""What an earlier run on the kernel took, and what it saw: by its journal."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import median

from agent.causes import Diagnosis
from agent.environment import describe
from agent.errors import JournalError, TransitionError
from agent.events import Baselined, Calibrated, Finished, Started
from agent.journal import read
from agent.launches import ObservedLaunch
from agent.repository import Repository
from agent.runs import find_runs, runs_folder
from agent.state import Run
from agent.transitions import advance


@dataclass(frozen=True)
class EarlierRun:
    """The newest run that got past its calibration, in seconds of wall time."""

    run_id: str
    machine: str
    latency_meaning: str
    same_text: bool
    """Its origin was the kernel as it is now."""
    baseline_s: float
    calibration_s: float
    iteration_s: float | None
    """The median; None where it made none."""
    iterations: int
    final_s: float | None
    tests: tuple[int, int]
    """How many correctness and perf tests it had."""
    launches: tuple[ObservedLaunch, ...]
    """Of its origin."""
    longest_ms: dict[str, float]
    diagnosis: Diagnosis | None
    """Of its origin."""


def earlier_run(repository: Repository, kernel: str, sha: str) -> EarlierRun | None:
    """The newest run on a kernel that says what one takes; None where there is none.

    Args:
        repository: the user's.
        kernel: its path from the root.
        sha: the commit that the next run would start from.
    """
    for name in reversed(find_runs(repository)):
        try:
            if found := _of_journal(repository, name, kernel, sha):
                return found
        except (JournalError, TransitionError):  # of another version, or damaged
            continue
    return None


def _of_journal(repository: Repository, name: str, kernel: str, sha: str) -> EarlierRun | None:
    run = Run()
    baseline: Baselined | None = None
    calibrated: Calibrated | None = None
    final_s: float | None = None
    spent_s: dict[int, float] = defaultdict(float)
    for line in read(runs_folder(repository) / name / "journal.jsonl"):
        event, iteration = line.event, run.iteration
        if isinstance(event, Started) and event.kernel != kernel:
            return None
        run = advance(run, event)
        match event:
            case Baselined():
                baseline = event
            case Calibrated() if calibrated is None:
                calibrated = event
            case Finished():
                final_s = event.took_s
            case _ if baseline and calibrated:
                spent_s[iteration] += event.took_s
    if run.started is None or baseline is None or calibrated is None:
        return None
    settled = [spent_s[row.iteration] for row in run.rows if row.iteration > 0]
    before, now = (repository.entry(each, kernel) for each in (run.started.origin_sha, sha))
    return EarlierRun(
        run_id=name,
        machine=describe(run.started.environment),
        latency_meaning=run.started.latency_meaning,
        same_text=before is not None and now is not None and before.blob == now.blob,
        baseline_s=baseline.took_s,
        calibration_s=calibrated.took_s,
        iteration_s=median(settled) if settled else None,
        iterations=len(settled),
        final_s=final_s,
        tests=(len(run.started.tests.correctness), len(run.started.tests.perf)),
        launches=baseline.launches,
        longest_ms=baseline.longest_ms,
        diagnosis=calibrated.diagnosis,
    )
