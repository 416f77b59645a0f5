"""Compiles candidates before a GPU sees them: forked from the warm server, all at the same time.

What it finds out helps and never judges. Where it fails, for whatever reason, nothing is known of
the candidate, and the tests will tell.
"""

from __future__ import annotations

import itertools
import math
import select
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
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
from tile_agent_pytest.compile_triton import CACHE, KEPT

TIMEOUT_S = 60.0
"""For all launches of one candidate. Larger tiles compile for minutes and are slow besides."""
LEAST_S = 5.0
"""In less, nothing is compiled that would be worth its start."""
READING_SHARE = 1 / 4
"""Of a time that is limited, what is left for reading what was compiled."""
AHEAD = 64
"""Launches of a candidate that are compiled for the workers alone: a kernel that tunes itself has
thirty for each value of its key."""
FEWEST_AT_ONCE, MOST_AT_ONCE = 8, 16
"""Each is a process; several take turns on a processor where there are few."""
BESIDE_SHARE = 1 / 2
"""Of the processors, those that are used while something else is measured."""
BESIDE_NICE = 10
"""How much less of a processor that two want a compile gets then."""
GIVEN_UP_AFTER_S = 0.2
"""How long it takes at most until it is seen that nobody wants a compile any more."""


class CandidateCompiler(Protocol):
    """What the loop asks of a compiler."""

    def compile(
        self,
        checkouts: Sequence[Checkout],
        tests: Sequence[str],
        until: float = math.inf,
        given_up: threading.Event | None = None,
    ) -> tuple[CompiledCommit | None, ...]:
        """What each checkout compiles to; None where that could not be found out.

        Args:
            checkouts: where the kernel and its tests lie.
            tests: files or node ids of the perf tests.
            until: when it must be over, by the monotonic clock; what is not done is inconclusive.
            given_up: with it something is measured meanwhile, to which the compilers give way;
                set, it ends them.
        """


@dataclass(frozen=True, eq=False)
class _Begun:
    """A compile that was begun."""

    place: int
    """Among those that were asked for."""
    checkout: Checkout
    worker: WorkerProcess
    folder: tempfile.TemporaryDirectory[str]
    """Of its job and its answers; it goes when they have been read."""
    deadline: float

    @property
    def scratch(self) -> Path:
        """The same as a path."""
        return Path(self.folder.name)


@dataclass
class ForkedCompiler:
    """The real one."""

    server: ForkServer
    wanted: Wanted
    logs: Path
    timeout_s: float = TIMEOUT_S
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def compile(
        self,
        checkouts: Sequence[Checkout],
        tests: Sequence[str],
        until: float = math.inf,
        given_up: threading.Event | None = None,
    ) -> tuple[CompiledCommit | None, ...]:
        """Compile what the tests of each checkout launch; they run on tensors without storage.

        As one is done another begins, and what was compiled is read meanwhile.
        """
        at_once = min(MOST_AT_ONCE, max(FEWEST_AT_ONCE, processors()))
        if given_up is not None:
            at_once = min(MOST_AT_ONCE, max(1, int(BESIDE_SHARE * processors())))
        share = max(1, processors() // max(1, min(at_once, len(checkouts))))
        wanted = replace(self.wanted, most_at_once=min(self.wanted.most_at_once, share))
        start = partial(self._start, tests, wanted, until, 0 if given_up is None else BESIDE_NICE)
        waiting, running = deque(enumerate(checkouts)), list[_Begun]()
        found: dict[int, Future[CompiledCommit | None]] = {}
        with ThreadPoolExecutor(at_once) as readers:
            while waiting or running:
                if given_up is not None and given_up.is_set():
                    _end_all(running)
                    break
                while waiting and len(running) < at_once:
                    if begun := start(*waiting.popleft()):
                        running.append(begun)
                for each in _done(running, math.inf if given_up is None else GIVEN_UP_AFTER_S):
                    running.remove(each)
                    ended = end(each.worker, each.scratch, each.deadline)
                    found[each.place] = readers.submit(self._read, wanted, until, each, ended)
        return tuple(found[n].result() if n in found else None for n in range(len(checkouts)))

    def _start(
        self,
        tests: Sequence[str],
        wanted: Wanted,
        until: float,
        nice: int,
        place: int,
        checkout: Checkout,
    ) -> _Begun | None:
        """None where there is no time for it, or it cannot be started."""
        left_s = until - time.monotonic()
        if left_s < LEAST_S:
            return None
        timeout_s = min(self.timeout_s, (1 - READING_SHARE) * left_s)
        folder = tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True)
        try:
            log = self.logs / f"compile-{next(self._numbers):04d}.log"
            scratch = Path(folder.name)
            worker = fork(self.server, checkout, tests, wanted, timeout_s, scratch, log, nice)
        except Exception as problem:
            folder.cleanup()
            self._say(f"{checkout.root}: {type(problem).__name__}: {problem}")
            return None
        return _Begun(place, checkout, worker, folder, time.monotonic() + timeout_s)

    def _read(
        self, wanted: Wanted, until: float, done: _Begun, ended: ScriptEnd
    ) -> CompiledCommit | None:
        try:
            with done.folder:
                deadline = min(until, time.monotonic() + self.timeout_s)
                found = read(done.checkout, wanted, ended, deadline)
        except Exception as problem:  # it only helps: what it cannot read, the tests will tell
            self._say(f"{done.checkout.root}: {type(problem).__name__}: {problem}")
            return None
        if not found.launches:  # a signature that the source only suggests proves nothing
            return None
        complete = bool(found.sequence) and not (found.left_out or found.failures)
        of_best = any(answer.get("untried") for answer in ended.answers)
        return CompiledCommit(found.results, found.sequence, complete, found.work, of_best)

    def _say(self, text: str) -> None:
        with (self.logs / "compile.log").open("a", encoding="utf-8") as log:
            log.write(f"{text}\n")


def _end_all(running: Sequence[_Begun]) -> None:
    for each in running:
        each.worker.abandon()
        each.folder.cleanup()


def _done(running: Sequence[_Begun], patience_s: float) -> list[_Begun]:
    """Those that have answered, have ended or are late; there may be none after that patience."""
    if not running:
        return []
    left_s = max(0.0, min(each.deadline for each in running) - time.monotonic())
    workers = [each.worker for each in running]
    ready = set(select.select(workers, [], [], min(left_s, patience_s))[0])
    now = time.monotonic()
    return [each for each in running if each.worker in ready or each.deadline <= now]


def fork(
    server: ForkServer,
    checkout: Checkout,
    tests: Sequence[str],
    wanted: Wanted,
    timeout_s: float,
    scratch: Path,
    log: Path,
    nice: int = 0,
) -> WorkerProcess:
    """Start compiling what the tests of a checkout launch, in a process that has imported it all.

    What Triton compiles lies where the workers over the same text of the kernel look for it, so
    that none of them compiles it again.

    Args:
        server: is forked.
        checkout: where the kernel and its tests lie.
        tests: files or node ids.
        wanted: what to compile.
        timeout_s: for all of it.
        scratch: an empty folder for the job, its answers and its temporary files.
        log: file for the output.
        nice: how far it gives way to other processes.
    """
    job, variables = prepare(checkout, tests, wanted, timeout_s, scratch)
    kept = KeptFolders(scratch / "tuned", scratch / "caches")  # packages make theirs when imported
    job |= {"answers": str(scratch / "answers"), "nice": nice}
    write, found = [scratch], {}
    if wanted.backend == "triton":
        file = checkout.root / checkout.kernel
        kept_for_workers = KeptFolders.of(log.parent, file, server.environment)
        cache = kept_for_workers.variables()[CACHE]
        write.append(Path(cache))
        found = {KEPT: cache}
        job["tuned"] = str(kept_for_workers.first_tuned)
    return server.fork(
        {
            "cwd": str(checkout.root),
            "log": str(log),
            "env": kept.variables() | variables | {"TMPDIR": str(scratch)} | found,
            "artifacts": job,
        },
        write=write,
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
