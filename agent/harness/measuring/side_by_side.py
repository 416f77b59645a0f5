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
from agent.frozen_tests import TestPlan
from agent.harness.measuring.failures import OUT_OF_MEMORY
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.results import Pass, TestResult
from agent.harness.processes.worker_session import Checkout, Telling, WorkerSession

LONG_S = 20.0
"""What the tests may take, one after the other, before it is worth more processes."""
MOST_WORKERS = 8
LEAST_TESTS = 2
"""Of a worker: fewer are not worth its start."""


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

    def fitting(self, tests: int) -> int:
        """How many for so many tests."""
        return max(1, min(self.most, tests // LEAST_TESTS))


def shares(
    nodeids: Sequence[str], workers: int, first: Collection[str] = ()
) -> list[tuple[str, ...]]:
    """The tests of each worker, dealt out in turn and kept in their order.

    Args:
        nodeids: all tests.
        workers: among which they are divided.
        first: tests that the first worker has to run.
    """
    dealt: list[list[str]] = [[n for n in nodeids if n in first], *([] for _ in range(workers - 1))]
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
    *,
    repeat: bool = False,
) -> Iterator[list[WorkerSession]]:
    """So many workers that collect the correctness tests of a checkout, all at once; see
    `WorkerSession`."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                WorkerSession(
                    server,
                    checkout,
                    new_log("verify"),
                    arguments=plan.arguments_with(plan.correctness),
                    tests=plan.correctness,
                    detect_launches=True,
                    repeat=repeat,
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
    return done.in_order(plan.correctness)


@dataclass(frozen=True)
class FirstPass:
    """The origin's tests, in one worker or in several."""

    done: Pass
    workers: int = 1
    """In how many the tests pass at once; 1 where that was not tried, or they do not."""
    took_s: float = 0.0
    """What they took in those."""
    tried: int = 1
    """In how many it was tried."""


@dataclass(frozen=True)
class OriginsTests:
    """The correctness tests of the origin, which nobody knows yet."""

    server: ForkServer
    checkout: Checkout
    plan: TestPlan
    most: WorkerCount
    new_log: Callable[[str], Path]

    def run(self, arm: WorkerSession, deadline: float, tell: Telling | None = None) -> FirstPass:
        """In one worker for a while. Where that is not enough, all of them in several at once, the
        first ones too; what fails there and not alone shows that they do not bear it.

        Args:
            arm: a worker that has collected them.
            deadline: for all of it.
            tell: called as each test of the first worker begins, and before those of several.

        Raises:
            WorkerError: as `WorkerSession.run`.
        """
        nodeids, count = self.plan.correctness, self.most.fitting(len(self.plan.correctness))
        if count == 1:
            return FirstPass(arm.run(nodeids, deadline, tell))
        first = arm.run(nodeids, deadline, tell, within_s=self.most.long_s)
        left = nodeids[len(first.tests) :]
        if not left:
            return FirstPass(first)
        if tell is not None:  # those workers are not heard before they are done
            tell(len(first.tests), f"all of them again, in {count} workers at once")
        begin = time.monotonic()
        try:
            together = self._at_once(count, deadline)
        except WorkerError:
            return FirstPass(first.joined(arm.run(left, deadline)), tried=count)
        took_s = time.monotonic() - begin
        alone = {test.nodeid: test for test in first.tests}
        if failed := [t.nodeid for t in together.tests if t.outcome == "failed"]:
            again = [nodeid for nodeid in failed if nodeid not in alone]
            alone |= {t.nodeid: t for t in (arm.run(again, deadline).tests if again else ())}
        bears_it = all(_alike(t, alone[t.nodeid]) for t in together.tests if t.nodeid in alone)
        done = replace(together, tests=tuple(alone.get(t.nodeid, t) for t in together.tests))
        return FirstPass(done, count if bears_it else 1, took_s, count)

    def _at_once(self, count: int, deadline: float) -> Pass:
        """A pass in several workers, in the order of the tests."""
        several = sessions(self.server, self.checkout, self.plan, count, self.new_log, repeat=True)
        with several as workers:
            for worker, share in zip(workers, shares(self.plan.correctness, count), strict=True):
                worker.order(share, deadline)
            done = reduce(Pass.joined, [worker.fetch(deadline) for worker in workers])
        return done.in_order(self.plan.correctness)


def _alike(one: TestResult, other: TestResult) -> bool:
    return (one.outcome, one.launched) == (other.outcome, other.launched)
