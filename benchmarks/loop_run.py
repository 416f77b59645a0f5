"""Runs the loop on a copy of a kernel's folder, and reads from the journal what became of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.events import Event, Measured
from agent.harness.measuring.other_layouts import ORIGIN
from agent.journal import read
from agent.measuring.statistics import Comparison
from agent.state import Run
from agent.transitions import advance
from benchmarks.spec import HERE, Spec

ITERATION_S = 120.0
INTERRUPT_S = 30.0
DOCTOR_S = 60.0
PATIENCE = "100"
WHOLE = ("--keep-going", "--patience", PATIENCE, "--max-iterations", PATIENCE)
"""The whole playbook is tried, however many entries gain nothing."""


@dataclass(frozen=True)
class Limits:
    """How long a run may take."""

    budget_s: float | None
    """After this no iteration is begun. None: the run is left its defaults, and ends by itself."""
    deadline_s: float
    """After this it is interrupted."""

    @property
    def options(self) -> tuple[str, ...]:
        """Those of `tile-agent run`."""
        if self.budget_s is None:
            return ()
        timeout = ("--iteration-timeout-s", f"{ITERATION_S:.0f}", "--no-counters")
        return (*WHOLE, "--time-budget-s", f"{self.budget_s:.0f}", *timeout)


def run_loop(spec: Spec, work: Path, limits: Limits) -> dict[str, Any]:
    """Run the playbook on a kernel, in a git repository of its own under `work`.

    All of it where there is a budget, else as far as the defaults go.

    Returns:
        What the run amounts to, as plain JSON; with `problem` when it did not get as far as a
        baseline.
    """
    repository = make_repository(spec, work)
    know_the_machine(repository)
    command = [sys.executable, "-m", "agent", "run", "--yes", "--kernel", spec.kernel.name]
    command += limits.options
    log = work / f"{spec.framework}-{spec.name}.log"
    began = time.monotonic()
    with log.open("w") as output:
        end = until(command, repository, output.fileno(), limits.deadline_s)
    wall_s = time.monotonic() - began
    lines = log.read_text().strip().splitlines()
    journals = sorted(repository.glob("sandbox/runs/*/journal.jsonl"))
    record = story([entry.event for entry in read(journals[0])] if journals else [])
    if not record["rows"]:
        return {"problem": lines[-1] if lines else "the run said nothing", "log": lines}
    best = subprocess.run(
        ["git", "-C", str(repository), "show", f"{record['best_sha']}:{spec.kernel.name}"],
        check=True,
        capture_output=True,
        text=True,
    )
    spent_s = {
        kind: [
            json.loads(file.read_text()).get("spent_s", {})
            for file in repository.parent.glob(f"state/logs/{spec.name}-*/*-{kind}.json")
        ]
        for kind in ("pair", "verify", "screen")
    }
    whole = [spent for spent in spent_s["verify"] if ORIGIN in spent]  # no baseline, no wrong one
    return record | {
        "cut": end.cut,
        "wall_s": round(wall_s, 1),
        "best_source": best.stdout,
        "log": lines,
        "pair_s": mean(spent_s["pair"]),
        "screen_s": mean(spent_s["screen"]),
        "verify_s": mean(whole),
    }


def know_the_machine(repository: Path) -> None:
    """Measure what the GPU attains, as `tile-agent doctor` does once for a machine."""
    until([sys.executable, "-m", "agent", "doctor"], repository, subprocess.DEVNULL, DOCTOR_S)


def mean(spent: list[dict[str, float]]) -> dict[str, float]:
    """What the time of a process pair or of a verification goes to, on average, in seconds."""
    names = dict.fromkeys(name for each in spent for name in each)
    return {name: round(sum(s.get(name, 0.0) for s in spent) / len(spent), 3) for name in names}


def make_repository(spec: Spec, work: Path) -> Path:
    """A copy of the kernel's folder under git, so that a run leaves this checkout alone."""
    repository = work / spec.framework / spec.name
    shutil.rmtree(repository, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache")
    shutil.copytree(spec.folder, repository, ignore=ignored)
    commit_all(repository)
    return repository


def commit_all(folder: Path) -> None:
    """Put a folder under git as it is, or what has come to it since."""
    identity = ["-c", "user.name=benchmark", "-c", "user.email=benchmark@localhost"]
    begin = [] if (folder / ".git").exists() else [["init", "--quiet", "--initial-branch=main"]]
    for command in (
        *begin,
        ["add", "--all"],
        [*identity, "commit", "--quiet", "--no-gpg-sign", "--message", "As first written"],
    ):
        subprocess.run(["git", "-C", str(folder), *command], check=True)


def git(folder: Path, *arguments: str) -> str:
    """What git prints, as it is."""
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def story(events: list[Event]) -> dict[str, Any]:
    """What happened in a run, from its journal, finished or not."""
    run = Run()
    compared: dict[int, Comparison] = {}
    ended_s: list[float] = []  # of each row
    origin_ms: dict[str, float] = {}
    for event in events:
        run = advance(run, event)
        ended_s += [run.spent_s] * (len(run.rows) - len(ended_s))
        if isinstance(event, Measured):
            compared[run.iteration] = event.comparison
        if not origin_ms and run.calibration:
            origin_ms = dict(run.calibration.levels_ms)
    rows = [
        {
            "iteration": row.iteration,
            "optimization": row.optimization,
            "latency_ms": row.latency_ms,
            "correct": row.correct,
            "status": row.status.value,
            "reason": row.reason,
            "effect": _effect(compared.get(row.iteration)),
            "ended_s": round(at_s, 1),
        }
        for row, at_s in zip(run.rows, ended_s, strict=True)
    ]
    return {
        "rows": rows,
        "skipped": [{"optimization": s.optimization, "reason": s.reason} for s in run.skipped],
        "notes": list(run.notes),
        "stopped": run.stopped.reason.value if run.stopped else None,
        "kernel_class": run.kernel_class if run.started else None,
        "best_sha": run.incumbent_sha,
        "faded": list(run.finished.faded) if run.finished else [],
        "final": _effect(run.finished.comparison) if run.finished else None,
        "origin_shares": run.least_times.shares(origin_ms) if run.least_times else {},
        "spent_s": round(run.spent_s, 1),
        "environment": run.started.environment if run.started else None,
    }


def _effect(comparison: Comparison | None) -> dict[str, float] | None:
    """How much less time the candidate takes, as a fraction, with its interval."""
    if comparison is None:
        return None
    overall = comparison.overall
    return {"improvement": overall.improvement, "low": overall.low, "high": overall.high}


@dataclass(frozen=True)
class CommandEnd:
    """How a command ended."""

    code: int
    """Its exit code, below zero for a signal."""
    cut: bool
    """It was ended at its deadline."""


def until(command: list[str], cwd: Path, output: int, deadline_s: float) -> CommandEnd:
    """Run a command. Past its deadline end it as Ctrl-C would.

    Args:
        command: a program and its arguments.
        cwd: where it runs; the state of tile-agent lies beside it.
        output: the descriptor that it writes to.
        deadline_s: how long it may take.
    """
    process = subprocess.Popen(
        command,
        cwd=cwd,
        stdout=output,
        stderr=output,
        env={**environment(), "TILE_AGENT_STATE_DIR": str(cwd.parent / "state")},
        start_new_session=True,
    )
    cut = False
    try:
        process.wait(deadline_s)
    except subprocess.TimeoutExpired:
        cut = True
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(INTERRUPT_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return CommandEnd(process.returncode, cut)


def environment() -> dict[str, str]:
    """This process's, with this checkout importable from any folder."""
    path = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}
