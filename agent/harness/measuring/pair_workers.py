"""The workers of process pairs: two at a time, and those of the next pair before its turn."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from agent.errors import WorkerError
from agent.frozen_tests import TestPlan
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import Checkout, WorkerSession

_NAMES = {True: "incumbent", False: "candidate"}


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
    _next: _Pair | None = field(init=False, default=None)
    """Those of the next pair, which collect while nothing is timed."""

    @contextmanager
    def taken(self) -> Iterator[dict[bool, WorkerSession]]:
        """Two workers for a pair, which end with the block."""
        pair, self._next = self._next or self._fork(), None
        with pair.alive:
            yield pair.arms

    def fork_next(self) -> None:
        """Have the workers of the next pair begin to collect."""
        if self._next is None:
            with suppress(WorkerError):  # the next pair meets it again, and says whose it is
                self._next = self._fork()

    def await_next(self, deadline: float) -> None:
        """Wait until they only wait: nothing else may run while blocks are timed."""
        try:
            for arm in self._next.arms.values() if self._next else ():
                arm.collection(deadline)
        except WorkerError:
            self.forget_next()

    def forget_next(self) -> None:
        """End them: there is no next pair, or they cannot be used."""
        pair, self._next = self._next, None
        for arm in pair.arms.values() if pair else ():
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
