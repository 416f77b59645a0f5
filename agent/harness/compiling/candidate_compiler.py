"""Compiles candidates before a GPU sees them: forked from the warm server, all at the same time.

What it finds out helps and never judges. Where it fails, for whatever reason, nothing is known of
the candidate, and the tests will tell.
"""

from __future__ import annotations

import itertools
import math
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from agent.errors import WorkerError, WorkerTimedOut
from agent.evidence.duplicates import CompiledCommit
from agent.harness.compiling.artifacts import PREFIX, Wanted, prepare, processors, read
from agent.harness.processes.fork_server import ForkServer, WorkerProcess
from agent.harness.processes.kept_folders import KeptFolders
from agent.harness.processes.script import ScriptEnd, read_answers
from agent.harness.processes.worker_session import Checkout

TIMEOUT_S = 60.0
"""For all launches of one candidate. Larger tiles compile for minutes and are slow besides."""
LEAST_S = 5.0
"""In less, nothing is compiled that would be worth its start."""
READING_SHARE = 1 / 4
"""Of a time that is limited, what is left for reading what was compiled."""
FEWEST_AT_ONCE, MOST_AT_ONCE = 8, 16
"""Each is a process; several take turns on a processor where there are few."""


class CandidateCompiler(Protocol):
    """What the loop asks of a compiler."""

    def compile(
        self, checkouts: Sequence[Checkout], tests: Sequence[str], until: float = math.inf
    ) -> tuple[CompiledCommit | None, ...]:
        """What each checkout compiles to; None where that could not be found out.

        Args:
            checkouts: where the kernel and its tests lie.
            tests: files or node ids of the perf tests.
            until: when it must be over, by the monotonic clock; what is not done is inconclusive.
        """


@dataclass
class ForkedCompiler:
    """The real one."""

    server: ForkServer
    wanted: Wanted
    logs: Path
    timeout_s: float = TIMEOUT_S
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def compile(
        self, checkouts: Sequence[Checkout], tests: Sequence[str], until: float = math.inf
    ) -> tuple[CompiledCommit | None, ...]:
        """Compile what the tests of each checkout launch; they run on tensors without storage."""
        found: list[CompiledCommit | None] = []
        at_once = min(MOST_AT_ONCE, max(FEWEST_AT_ONCE, processors()))
        for first in range(0, len(checkouts), at_once):
            found += self._batch(checkouts[first : first + at_once], tests, until)
        return tuple(found)

    def _batch(
        self, checkouts: Sequence[Checkout], tests: Sequence[str], until: float
    ) -> list[CompiledCommit | None]:
        left_s = until - time.monotonic()
        if left_s < LEAST_S:
            return [None] * len(checkouts)
        timeout_s = min(self.timeout_s, (1 - READING_SHARE) * left_s)
        deadline = time.monotonic() + timeout_s
        share = max(1, processors() // len(checkouts))
        wanted = replace(self.wanted, most_at_once=min(self.wanted.most_at_once, share))
        with ExitStack() as stack:
            folders = [
                Path(
                    stack.enter_context(
                        tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True)
                    )
                )
                for _ in checkouts
            ]
            started = [
                self._start(checkout, tests, wanted, timeout_s, folder)
                for checkout, folder in zip(checkouts, folders, strict=True)
            ]
            ended = [
                None if worker is None else end(worker, folder, deadline)
                for worker, folder in zip(started, folders, strict=True)
            ]
            with ThreadPoolExecutor(len(checkouts)) as pool:
                return list(pool.map(partial(self._read, wanted, until), checkouts, ended))

    def _start(
        self,
        checkout: Checkout,
        tests: Sequence[str],
        wanted: Wanted,
        timeout_s: float,
        scratch: Path,
    ) -> WorkerProcess | None:
        try:
            log = self.logs / f"compile-{next(self._numbers):04d}.log"
            return fork(self.server, checkout, tests, wanted, timeout_s, scratch, log)
        except Exception as problem:
            self._say(f"{checkout.root}: {type(problem).__name__}: {problem}")
            return None

    def _read(
        self, wanted: Wanted, until: float, checkout: Checkout, ended: ScriptEnd | None
    ) -> CompiledCommit | None:
        if ended is None:
            return None
        try:
            deadline = min(until, time.monotonic() + self.timeout_s)
            found = read(checkout, wanted, ended, deadline)
        except Exception as problem:  # it only helps: what it cannot read, the tests will tell
            self._say(f"{checkout.root}: {type(problem).__name__}: {problem}")
            return None
        if not found.launches:  # a signature that the source only suggests proves nothing
            return None
        complete = bool(found.sequence) and not (found.left_out or found.failures)
        return CompiledCommit(found.results, found.sequence, complete, found.work)

    def _say(self, text: str) -> None:
        with (self.logs / "compile.log").open("a", encoding="utf-8") as log:
            log.write(f"{text}\n")


def fork(
    server: ForkServer,
    checkout: Checkout,
    tests: Sequence[str],
    wanted: Wanted,
    timeout_s: float,
    scratch: Path,
    log: Path,
) -> WorkerProcess:
    """Start compiling what the tests of a checkout launch, in a process that has imported it all.

    Args:
        server: is forked.
        checkout: where the kernel and its tests lie.
        tests: files or node ids.
        wanted: what to compile.
        timeout_s: for all of it.
        scratch: an empty folder for the job, its answers and its temporary files.
        log: file for the output.
    """
    job, variables = prepare(checkout, tests, wanted, timeout_s, scratch)
    kept = KeptFolders(scratch / "tuned", scratch / "caches")  # packages make theirs when imported
    job["answers"] = str(scratch / "answers")
    return server.fork(
        {
            "cwd": str(checkout.root),
            "log": str(log),
            "env": kept.variables() | variables | {"TMPDIR": str(scratch)},
            "artifacts": job,
        },
        write=[scratch],
    )


def end(worker: WorkerProcess, scratch: Path, deadline: float) -> ScriptEnd:
    """Wait for a worker and read what it has answered, whole or not."""
    code: int | None
    fate, code = "the compiling process is done", 0
    try:
        worker.receive(deadline)
        worker.close()
    except WorkerTimedOut as problem:
        fate, code = str(problem), None
    except WorkerError as problem:
        fate, code = str(problem), 1
    return ScriptEnd(tuple(read_answers(scratch / "answers")), fate, code)
