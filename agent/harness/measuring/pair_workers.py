"""The workers of process pairs: two at a time, and those of the next pairs before their turn."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from agent.errors import WorkerDied, WorkerError
from agent.frozen_tests import TestPlan
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.results import Pass, Stop
from agent.harness.processes.worker_session import Checkout, WorkerSession

ROOM_TIMEOUT_S = 5.0
"""To give up a CUDA context takes a second."""
MOST_AHEAD = 4
"""Pairs whose workers may wait for their turn: each of the two holds a context on the GPU."""
_NAMES = {True: "incumbent", False: "candidate"}


def most_ahead() -> int:
    """How many pairs may start while one prepares, on the processors of this machine."""
    return max(1, min(MOST_AHEAD, len(os.sched_getaffinity(0)) // 2 - 1))


@dataclass(frozen=True)
class Pair:
    """Two workers, which end together; True is the incumbent's."""

    alive: ExitStack
    arms: dict[bool, WorkerSession]
    stops: dict[bool, Stop | Pass] = field(default_factory=dict)
    """Where they wait, if they have begun with the tests."""


@dataclass
class PairWorkers:
    """Forks them; True is the incumbent's."""

    servers: Mapping[bool, ForkServer]
    checkouts: Mapping[bool, Checkout]
    plan: TestPlan
    logs: Path
    numbers: itertools.count[int]
    """Of the logs."""
    _waiting: deque[Pair] = field(init=False, default_factory=deque)
    """Those that have not been taken, which collect while nothing is timed."""

    beside: bool = True
    """Whether what they began at once went well."""

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._waiting)

    @property
    def ahead(self) -> int:
        """How many of those that wait have begun with the tests."""
        return sum(bool(pair.stops) for pair in self._waiting)

    @contextmanager
    def taken(self) -> Iterator[Pair]:
        """Two workers for a pair, which end with the block."""
        pair = self._waiting.popleft() if self._waiting else self._fork()
        with pair.alive:
            yield pair

    @property
    def none_wait(self) -> bool:
        """Whether no pair has been started that was not taken."""
        return not self._waiting

    def start(self, pairs: int) -> int:
        """Have workers begin to collect, so that those of so many pairs wait.

        All at once: they are waited for together, which takes little longer than for two of them.

        Returns:
            How many pairs wait.
        """
        with suppress(WorkerError):  # who takes a pair meets it again, and says whose it is
            while len(self._waiting) < pairs:
                self._waiting.append(self._fork())
        return len(self._waiting)

    def await_waiting(self, deadline: float, *, begin: bool, call: bool) -> None:
        """Wait until they only wait: nothing else may run while blocks are timed.

        Args:
            deadline: for all of that.
            begin: they go on to the first callable that is timed, which makes inputs.
            call: and call it for the first time.
        """
        pairs = [pair for pair in self._waiting if not pair.stops]
        try:
            for pair in pairs:
                for arm in pair.arms.values():
                    arm.collection(deadline)
                    if begin:
                        arm.begin(self.plan.perf, deadline)
            for pair in pairs if begin else ():
                for whose, arm in pair.arms.items():
                    pair.stops[whose] = arm.next_stop(deadline)
            if not all(isinstance(stop, Stop) for pair in pairs for stop in pair.stops.values()):
                raise WorkerDied("a test fails beside others")
            waiting = [arm for pair in pairs if call for arm in pair.arms.values()]
            for arm in waiting:
                arm.order_first()
            for arm in waiting:
                arm.await_first(deadline)
        except WorkerError:  # alone they may have the memory of the GPU that they lacked
            self.beside = False
            self.forget_waiting()

    def await_retired(self) -> None:
        """Have the workers of earlier pairs give back the GPU's memory."""
        for server in {*self.servers.values()}:
            server.await_retired(ROOM_TIMEOUT_S)

    def forget_waiting(self) -> None:
        """End them: there are no next pairs, or they cannot be used."""
        while self._waiting:
            for arm in self._waiting.popleft().arms.values():
                arm.kill()

    def _fork(self) -> Pair:
        with ExitStack() as stack:
            arms = {whose: stack.enter_context(self._arm(whose)) for whose in (True, False)}
            return Pair(stack.pop_all(), arms)

    def _arm(self, whose: bool) -> WorkerSession:
        return WorkerSession(
            self.servers[whose],
            self.checkouts[whose],
            self.logs / f"{next(self.numbers):04d}-{_NAMES[whose]}.log",
            arguments=self.plan.arguments_with(self.plan.perf),
            tests=self.plan.perf,
            opens_gpu=True,
        )
