"""Correctness tests in several workers at once, where one after the other takes long.

What such tests wait for is a compiler: TileGym's rotary embedding is tuned anew in most of its 84
tests, which takes 107 s on one of 16 processors, for every candidate. Tests may rest on each
other, or want a GPU for themselves; so the origin's have to pass side by side first.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

from agent.errors import WorkerError
from agent.events import TestPlan
from agent.harness.measuring.failures import OUT_OF_MEMORY
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.results import Pass
from agent.harness.processes.worker_session import Checkout, WorkerSession

LONG_S = 20.0
"""What the tests may take, one after the other, before it is worth more processes."""
MOST_WORKERS = 8
LEAST_TESTS = 2
"""Of a worker: fewer are not worth its start."""
START_S = 30.0
"""What the workers may take to start and to collect."""


@dataclass(frozen=True)
class WorkerCount:
    """How many workers there may be."""

    most: int
    long_s: float = LONG_S

    @classmethod
    def of(cls, asked: int | None) -> WorkerCount:
        """As the user asks; else half as many as there are processors, which compilers need too."""
        if asked is not None:
            return cls(asked, 0.0)
        return cls(min(MOST_WORKERS, len(os.sched_getaffinity(0)) // 2))

    def fitting(self, tests: int, took_s: float) -> int:
        """How many for so many tests, which took so long one after the other."""
        return max(1, min(self.most, tests // LEAST_TESTS)) if took_s > self.long_s else 1


def shares(
    nodeids: Sequence[str], workers: int, first: Collection[str] = ()
) -> list[tuple[str, ...]]:
    """The tests of each worker, dealt out in turn and kept in their order.

    Args:
        nodeids: all tests.
        workers: among which they are divided.
        first: tests that the first worker has to run.
    """
    dealt: list[list[str]] = [[] for _ in range(workers)]
    for nodeid in nodeids:
        if nodeid in first:
            dealt[0].append(nodeid)
    for nodeid in nodeids:
        if nodeid not in first:
            min(dealt, key=len).append(nodeid)
    place = {nodeid: index for index, nodeid in enumerate(nodeids)}
    return [tuple(sorted(share, key=place.__getitem__)) for share in dealt]


@contextmanager
def sessions(
    server: ForkServer,
    checkout: Checkout,
    plan: TestPlan,
    count: int,
    new_log: Callable[[str], Path],
) -> Iterator[list[WorkerSession]]:
    """So many workers that collect the correctness tests of a checkout, all at once."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                WorkerSession(
                    server,
                    checkout,
                    new_log("verify"),
                    arguments=plan.arguments,
                    tests=plan.correctness,
                    detect_launches=True,
                )
            )
            for _ in range(count)
        ]


def joined(
    arm: WorkerSession, others: Sequence[WorkerSession], plan: TestPlan, deadline: float
) -> Pass:
    """The pass that each was ordered to begin, as one. Raises as `WorkerSession.fetch`.

    What found no memory, since the others had it, runs again in the first worker, alone.
    """
    first = arm.fetch(deadline)
    done = reduce(Pass.joined, [other.fetch(deadline) for other in others], first)
    poor = {t.nodeid for t in done.tests if t.exception == OUT_OF_MEMORY} if others else set()
    for other in others:  # what they hold of a GPU is needed, perhaps at once
        other.kill() if poor else other.close()
    if poor:
        again = arm.run([n for n in plan.correctness if n in poor], deadline)
        rest = tuple(test for test in done.tests if test.nodeid not in poor)
        done = replace(done, tests=rest).joined(again)
    return done.in_order({nodeid: index for index, nodeid in enumerate(plan.correctness)})


def pass_so(
    server: ForkServer,
    checkout: Checkout,
    plan: TestPlan,
    alone: Pass,
    count: int,
    new_log: Callable[[str], Path],
) -> bool:
    """Whether the tests pass in so many workers as they do in one, and are over as soon, about.

    Args:
        server: forks the workers.
        checkout: of the origin.
        plan: its correctness tests.
        alone: what they did in one worker.
        count: of the workers.
        new_log: gives files for their output.
    """
    passed = {test.nodeid: test.launched for test in alone.tests if test.outcome == "passed"}
    wanted = replace(plan, correctness=tuple(n for n in plan.correctness if n in passed))
    deadline = time.monotonic() + START_S + alone.seconds
    try:
        with sessions(server, checkout, wanted, count, new_log) as workers:
            for worker, share in zip(workers, shares(wanted.correctness, count), strict=True):
                worker.order(share, deadline)
            done = [worker.fetch(deadline) for worker in workers]
    except WorkerError:
        return False
    seen = {t.nodeid: t.launched for p in done for t in p.tests if t.outcome == "passed"}
    return seen == passed
