"""One run on a worker: the ordinary `tile-agent run`, in a clone, followed by its journal.

Ray knows nothing of it: this is a generator of what is told, and a test can ask it for that.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from agent.environment import Environment, describe
from agent.errors import JournalError, UsageError
from agent.fleet.bundles import bundled, point_of, remembered, restored, unpacked
from agent.fleet.fitness import unfit
from agent.fleet.jobs import (
    Ended,
    KernelJob,
    PackedRepository,
    Placed,
    Progressed,
    RefusedByMachine,
    ResumePoint,
    Told,
)
from agent.harness.processes.interpreter import environment_of
from agent.harness.processes.program import running_program
from agent.harness.roof import known_roof
from agent.repository import Repository
from agent.runs import find_runs, runs_folder
from agent.workspace import state_dir

POLL_S = 1.0
"""What a lost machine may cost beside the effect that was under way."""
_FILES = ("perf_results.md", "escalation.md")


def attempt(
    job: KernelJob,
    source: PackedRepository,
    begun_on: Environment,
    point: ResumePoint | None,
    node_id: str = "",
    past: Sequence[bytes] = (),
) -> Iterator[Told]:
    """Run a job, or go on with it, and tell what becomes of it.

    Args:
        job: which one.
        source: the repository.
        begun_on: the machine that the fleet was begun on.
        point: from what to go on; None to begin.
        node_id: as Ray names this node.
        past: the journals of earlier runs on the kernel.
    """
    begin = time.monotonic()
    host = socket.gethostname()
    try:
        here = environment_of(job.python or sys.executable)
    except UsageError as problem:
        yield RefusedByMachine(node_id, host, str(problem))
        return
    if not job.gpus:
        here = replace(here, gpus=())  # whatever there is, the run does not see it
    if reason := unfit(job, point, begun_on, here):
        yield RefusedByMachine(node_id, host, reason)
        return
    yield Placed(host, describe(here.to_json()))
    folder = state_dir() / "fleet"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{job.name}-", dir=folder) as scratch:
        root = Path(scratch) / "repository"
        root.mkdir()
        repository = unpacked(source, root)
        remembered(repository, past)
        if point:
            restored(repository, point, job.branch, source.sha)
        for told in _followed(job, repository, source.sha, point, begin):
            yield _with_card(told, here) if isinstance(told, Ended) else told


def _with_card(told: Ended, here: Environment) -> Ended:
    """The end of a run with what is known of its GPU."""
    if here.gpu is None or (roof := known_roof(here.gpu)) is None:
        return told
    attained = {"GB/s": roof.attained().bandwidth_gb_s, "TFLOP/s": roof.attained().half_tflops}
    return replace(told, card=here.gpu.uuid, attained=attained)


def _followed(
    job: KernelJob, repository: Repository, base: str, point: ResumePoint | None, begin: float
) -> Iterator[Told]:
    log = repository.root.parent / "log.txt"
    told = (point.journal if point else b"", dict[str, bytes]())
    words = ("resume", point.run_id) if point else ("run", "--yes", *job.words)
    with running_program(
        [sys.executable, "-P", "-m", "agent", *words],
        repository.root / ("" if point else job.folder),
        log=log,
        pass_env=tuple(os.environ),  # it is this program, which keeps secrets from what it starts
        variables={} if job.gpus else {"CUDA_VISIBLE_DEVICES": ""},
    ) as program:
        code = None
        while code is None:
            code = program.wait(POLL_S)
            if (found := _point(repository)) is None:
                continue
            if (now := (found.journal, _files(repository, found.run_id))) != told:
                told = now
                # After the journal: the commits that it speaks of are there when its line is.
                commits = bundled(repository, found.run_id, job.branch, base)
                whole = replace(found, bundle=commits)
                yield Progressed(whole, time.monotonic() - begin, now[1])
    text = log.read_bytes()
    said = [line for line in text.decode(errors="replace").splitlines() if line.strip()]
    last = said[-1].removeprefix("tile-agent: ") if said else "nothing"
    yield Ended(code, last, time.monotonic() - begin, text)


def _point(repository: Repository) -> ResumePoint | None:
    """Where the run stands, without its commits; None before it has begun, or if taken back."""
    try:
        (run_id,) = find_runs(repository)
        return point_of(run_id, runs_folder(repository) / run_id / "journal.jsonl", b"")
    except (ValueError, OSError, JournalError):
        return None


def _files(repository: Repository, run_id: str) -> dict[str, bytes]:
    folder = runs_folder(repository) / run_id
    return {name: (folder / name).read_bytes() for name in _FILES if (folder / name).exists()}
