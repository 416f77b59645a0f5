"""The workers of process pairs: two at a time, and those of the next pairs before their turn."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from agent.errors import WorkerError
from agent.frozen_tests import TestPlan
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import Checkout, WorkerSession

MOST_AHEAD = 4
"""Pairs whose workers may wait for their turn: each of the two holds a context on the GPU."""
_NAMES = {True: "incumbent", False: "candidate"}


def most_ahead() -> int:
    """How many pairs may start while one prepares, on the processors of this machine."""
    return max(1, min(MOST_AHEAD, len(os.sched_getaffinity(0)) // 2 - 1))


@dataclass(frozen=True)
class _Pair:
    """Two workers, which end together."""

    alive: ExitStack
    arms: dict[bool, WorkerSession]


@dataclass
class PairWorkers:
    """Forks them; True is the incumbent's."""

    servers: Mapping[bool, ForkServer]
    checkouts: Mapping[bool, Checkout]
    plan: TestPlan
    logs: Path
    numbers: itertools.count[int]
    """Of the logs."""
    _waiting: deque[_Pair] = field(init=False, default_factory=deque)
    """Those of the next pairs, which collect while nothing is timed."""

    @contextmanager
    def taken(self) -> Iterator[dict[bool, WorkerSession]]:
        """Two workers for a pair, which end with the block."""
        pair = self._waiting.popleft() if self._waiting else self._fork()
        with pair.alive:
            yield pair.arms

    def fork_ahead(self, pairs: int) -> None:
        """Have the workers of so many next pairs begin to collect, where none do.

        All at once: they are waited for together, which takes little longer than for two of them.
        """
        if self._waiting:
            return
        with suppress(WorkerError):  # the next pair meets it again, and says whose it is
            for _ in range(pairs):
                self._waiting.append(self._fork())

    def await_ahead(self, deadline: float) -> None:
        """Wait until they only wait: nothing else may run while blocks are timed."""
        try:
            for pair in self._waiting:
                for arm in pair.arms.values():
                    arm.collection(deadline)
        except WorkerError:
            self.forget_ahead()

    def forget_ahead(self) -> None:
        """End them: there are no next pairs, or they cannot be used."""
        while self._waiting:
            for arm in self._waiting.popleft().arms.values():
                arm.kill()

    def _fork(self) -> _Pair:
        with ExitStack() as stack:
            arms = {whose: stack.enter_context(self._arm(whose)) for whose in (True, False)}
            return _Pair(stack.pop_all(), arms)

    def _arm(self, whose: bool) -> WorkerSession:
        return WorkerSession(
            self.servers[whose],
            self.checkouts[whose],
            self.logs / f"{next(self.numbers):04d}-{_NAMES[whose]}.log",
            arguments=self.plan.arguments,
            tests=self.plan.perf,
            opens_gpu=True,
        )
