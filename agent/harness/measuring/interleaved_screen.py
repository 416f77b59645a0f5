"""A short look at several variants of a sweep at once, enough to rank them.

Most of a process pair's time passes before its first block: two processes start, open the GPU, make
inputs. In a screen the incumbent's worker and those of several variants do that together; then
only one of them has work at a time. Each round of blocks goes forward and back again, so that drift
meets all alike, and every variant shares the incumbent's blocks.

Nobody is blamed here. Whoever fails, is late, or stops where the incumbent does not, leaves the
screen; a process pair will say what is wrong with it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from agent.errors import WorkerError
from agent.frozen_tests import TestPlan
from agent.harness.measuring.block_timing import BlockTiming
from agent.harness.measuring.failures import import_failure
from agent.harness.measuring.records import config_name, short_names
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.results import Pass, Stop
from agent.harness.processes.worker_session import Checkout, WorkerSession
from agent.measuring.screening import Look
from agent.measuring.statistics import geometric_mean, weighted_latency_ms, weighted_mean

AT_ONCE = 4
"""Variants of a screen: each holds inputs of its own, beside the incumbent's."""
INCUMBENT = ""
"""The incumbent's name in a screen; the variants have those of their commits."""


class InterleavedScreen:
    """Workers over the incumbent and some variants, all alive at the same time."""

    def __init__(
        self,
        server: ForkServer,
        plan: TestPlan,
        timing: BlockTiming,
        deadline: float,
        *,
        names: Mapping[str, str] | None = None,
        only: frozenset[str] | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """Nothing is started yet.

        Args:
            server: forks the workers.
            plan: the tests; the perf tests are timed.
            timing: how long the blocks are, and how many rounds of them there are.
            deadline: for all of it.
            names: node id -> what its configs are called; by the plan's perf tests when left out.
            only: the configs that are measured; all when left out.
            weights: config -> how much it counts, 1 where there is none.
        """
        self._server = server
        self._plan = plan
        self._timing = timing
        self._deadline = deadline
        self._names = names or short_names(plan.perf)
        self._only = only
        self._weights = weights or {}
        self._met: list[str] = []
        """The configs at which they have waited."""
        self._measured = 0
        """How many of them were measured."""
        self._arms: dict[str, WorkerSession] = {}
        self._log_ratios: dict[str, dict[str, float]] = {}
        """Variant -> config -> log of the incumbent's latency by its own."""
        self._latencies_ms: dict[str, dict[str, float]] = {}
        """The same with its own latency."""

    def look(
        self, incumbent: Checkout, variants: Mapping[str, Checkout], logs: Mapping[str, Path]
    ) -> Mapping[str, Look]:
        """Time them all.

        Args:
            incumbent: what they are compared with.
            variants: name -> checkout.
            logs: files for the workers' output, by name.

        Returns:
            What was seen of those that stayed to the end.
        """
        checkouts = {INCUMBENT: incumbent, **variants}
        self._met, self._measured = [], 0
        self._log_ratios = {name: {} for name in variants}
        self._latencies_ms = {name: {} for name in variants}
        with ExitStack() as stack:
            for name, checkout in checkouts.items():
                with self._may_leave(name):
                    arm = WorkerSession(
                        self._server,
                        checkout,
                        logs[name],
                        arguments=self._plan.arguments,
                        tests=self._plan.perf,
                    )
                    stack.callback(arm.kill)
                    self._arms[name] = arm
            self._run()
            for arm in self._arms.values():
                arm.close()
            stack.pop_all()
        return {
            name: Look(
                weighted_mean(log_ratios, self._weights),
                weighted_latency_ms(self._latencies_ms[name], self._weights),
            )
            for name, log_ratios in self._log_ratios.items()
            if name in self._arms and log_ratios
        }

    def _run(self) -> None:
        for name, arm in self._each():
            with self._may_leave(name):
                if import_failure(arm, self._deadline):
                    self._leave(name)
        stop = self._to_the_next(lambda arm: arm.begin(self._plan.perf, self._deadline))
        while stop is not None:
            self._met.append(config_name(stop, self._names, self._met))
            if self._only is None or self._met[-1] in self._only:
                self._measure()
            stop = self._to_the_next(lambda arm: arm.go())

    def _to_the_next(self, start: Callable[[WorkerSession], None]) -> Stop | None:
        """Where the incumbent waits then, and variants in the same test; others leave.

        One after the other: a test may make its inputs, and a reference, of much of the GPU's
        memory, and what one does for a moment need not fit five times.
        """
        stops: dict[str, Stop | Pass] = {}
        for name, arm in self._each():
            with self._may_leave(name):
                start(arm)
                stops[name] = arm.next_stop(self._deadline)
        ours = stops.get(INCUMBENT)
        for name, _ in self._each():
            if not _together(stops[name], ours):
                self._leave(name)
        return ours if len(self._arms) > 1 and isinstance(ours, Stop) else None

    def _measure(self) -> None:
        """All blocks of one config."""
        estimate_ms = self._prepare()
        if not estimate_ms:
            return
        expected = len(self._plan.perf) if self._only is None else len(self._only)
        timing = self._timing.of_several(max(expected, self._measured + 1), self._measured)
        self._measured += 1
        for name, arm in self._each():
            with self._may_leave(name):
                arm.block(timing.count(timing.settle_ms, estimate_ms[name]), self._deadline)
        slow = any(estimate_ms[name] > timing.slow_ms for name, _ in self._each())
        block_ms: dict[str, list[float]] = {name: [] for name in estimate_ms}
        for _ in range(1 if slow else timing.quads):
            there = list(self._arms)
            for name in (*there, *reversed(there)):
                if name in self._arms:
                    with self._may_leave(name):
                        count = timing.count(timing.block_ms, estimate_ms[name])
                        taken = self._arms[name].block(count, self._deadline)
                        block_ms[name].append(statistics.median(taken.samples_ms))
        for name, _ in self._each():
            if name != INCUMBENT:
                ours, theirs = map(geometric_mean, (block_ms[INCUMBENT], block_ms[name]))
                self._log_ratios[name][self._met[-1]] = math.log(ours / theirs)
                self._latencies_ms[name][self._met[-1]] = theirs

    def _prepare(self) -> dict[str, float]:
        """Have all compiled, one after the other, and estimated, in ms a launch.

        The incumbent is the first: it says how all are timed, and whether they launch a kernel.
        Nobody is prepared where it launches none in what a test times by itself.
        """
        method: str | None = None
        processor: int | None = None
        launched = False
        estimate_ms: dict[str, float] = {}
        for name, arm in self._each():
            with self._may_leave(name):
                prepared = arm.prepare(method, self._deadline, processor)
                if isinstance(prepared, str) or (launched and not prepared.launched):
                    self._leave(name)
                    continue
                if name == INCUMBENT and not prepared.method:
                    return {}
                estimate_ms[name] = prepared.estimate_ms
                method, launched = prepared.method, launched or prepared.launched
                processor = prepared.processor
        return estimate_ms

    def _each(self) -> Iterator[tuple[str, WorkerSession]]:
        """Who has not left, while others may."""
        for name in list(self._arms):
            if arm := self._arms.get(name):
                yield name, arm

    @contextmanager
    def _may_leave(self, name: str) -> Iterator[None]:
        """A worker that fails in the block leaves."""
        try:
            yield
        except WorkerError:
            self._leave(name)

    def _leave(self, name: str) -> None:
        """End a worker; without the incumbent there is nothing to compare with, and all leave."""
        for gone in list(self._arms) if name == INCUMBENT else [name]:
            if arm := self._arms.pop(gone, None):
                arm.kill()


def _together(stop: Stop | Pass, ours: Stop | Pass | None) -> bool:
    """In the same test as the incumbent, or at the end with it, and nothing has failed."""
    if isinstance(ours, Stop):
        return stop == ours
    return isinstance(stop, Pass) and not stop.not_passed()


def groups(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """The variants of each screen."""
    for first in range(0, len(names), AT_ONCE):
        yield names[first : first + AT_ONCE]
