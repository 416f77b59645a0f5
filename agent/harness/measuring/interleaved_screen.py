"""Looks at several variants of a sweep at once, enough to rank them.

Most of a process pair's time passes before its first block: two processes start, open the GPU, make
inputs. In a screen the incumbent's worker and those of several variants do that together; then
only one of them has work at a time, and they stay for a longer look at those that may win. Each
round of blocks goes forward and back again, so that drift meets all alike, and every variant shares
the incumbent's blocks.

Nobody is blamed here. Whoever fails, is late, or stops where the incumbent does not, leaves the
screen; a process pair will say what is wrong with it.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self

from agent.errors import WorkerError, WorkerTimedOut
from agent.frozen_tests import TestPlan
from agent.harness.measuring.block_timing import BlockTiming
from agent.harness.measuring.failures import import_failure
from agent.harness.measuring.pair_workers import ROOM_TIMEOUT_S
from agent.harness.measuring.records import config_name, short_names
from agent.harness.measuring.spent import SpentTime
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.results import Pass, Stop
from agent.harness.processes.worker_session import (
    Checkout,
    WorkerSession,
    can_choose_later,
    tunes_itself,
)
from agent.measuring.screening import Look
from agent.measuring.statistics import Blocks, middle_ms, weighted_latency_ms, weighted_mean

INCUMBENT = ""
"""The incumbent's name in a screen; the variants have those of their commits."""
FAR_BEHIND = 3.0
"""So many times the incumbent's time at a config is not timed: no other config makes up for it."""
LONG_MS = 1.0
"""Below that it costs nothing to be sure."""


class InterleavedScreen:
    """Workers over the incumbent and some variants, all alive at the same time. Use it in a `with`.

    They stay between one look and the next, so that a longer look at those that may win costs its
    blocks and little else.
    """

    def __init__(
        self,
        server: ForkServer,
        plan: TestPlan,
        checkouts: Mapping[str, Checkout],
        logs: Mapping[str, Path],
        *,
        names: Mapping[str, str] | None = None,
        only: frozenset[str] | None = None,
        configs: int | None = None,
        weights: Mapping[str, float] | None = None,
        roomy: bool = False,
    ) -> None:
        """Start the workers.

        Args:
            server: forks them.
            plan: the tests; the perf tests are timed.
            checkouts: of the variants, by name, and of the `INCUMBENT`.
            logs: files for the workers' output, by name.
            names: node id -> what its configs are called; by the plan's perf tests when left out.
            only: the configs that are measured; all when left out.
            configs: how many that are, where it is known.
            weights: config -> how much it counts, 1 where there is none.
            roomy: the GPU holds the inputs of all with ease, so that they are made at once.
        """
        self._server = server
        self._plan = plan
        self._names = names or short_names(plan.perf)
        self._only = only
        self._configs = configs
        self._weights = weights or {}
        self._roomy = roomy
        self._timing = BlockTiming()
        self._record = logs[INCUMBENT].with_suffix(".json")
        self._spent = SpentTime()
        self._deadline = 0.0
        self._collected = False
        self._waiting_ms: dict[str, float] | None = None
        """Name -> estimate of a launch, where all wait at the one config that is measured."""
        self._met: list[str] = []
        """The configs at which they have waited in this pass."""
        self._measured = 0
        """How many of them were measured."""
        self._arms: dict[str, WorkerSession] = {}
        self._late: set[str] = set()
        """Who left because the time was over."""
        self._behind: set[str] = set()
        """Who left because it is far slower than the incumbent."""
        self._log_ratios: dict[str, dict[str, float]] = {}
        """Variant -> config -> log of the incumbent's latency by its own."""
        self._latencies_ms: dict[str, dict[str, float]] = {}
        """The same with its own latency."""
        if not roomy:  # what the tests allocate when they are imported may need it already
            server.await_retired(ROOM_TIMEOUT_S)
        ours_first = sorted(checkouts, key=lambda name: name != INCUMBENT)
        with ExitStack() as stack, self._spent.on("start"):
            stack.callback(self.close)
            for name in ours_first:
                with self._may_leave(name):
                    self._arms[name] = WorkerSession(
                        server,
                        checkouts[name],
                        logs[name],
                        arguments=plan.arguments_with(plan.perf),
                        tests=plan.perf,
                        opens_gpu=True,
                    )
            stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers, and do not wait for them: each would take a second."""
        while self._arms:
            self._arms.popitem()[1].abandon()

    def holds(self, names: Collection[str]) -> bool:
        """Whether all of them are still there, and the incumbent."""
        return {INCUMBENT, *names} <= self._arms.keys()

    def collect(self, deadline: float) -> None:
        """Wait until all have found their tests; who has not by then, or cannot, leaves."""
        if self._collected:
            return
        with self._spent.on("collect"):
            for name, arm in self._each():
                with self._may_leave(name):
                    if import_failure(arm, deadline):
                        self._leave(name)
        self._collected = True

    def look(
        self, names: Collection[str], timing: BlockTiming, deadline: float
    ) -> Mapping[str, Look]:
        """Time some of the variants; the others leave.

        Args:
            names: of the variants.
            timing: how long the blocks are, and how many rounds of them there are.
            deadline: for all of it.

        Returns:
            What was seen of those that stayed to the end, or until the time was over.
        """
        self._timing, self._deadline = timing, deadline
        self._late.clear()
        self._behind.clear()
        self._log_ratios = {name: {} for name in names}
        self._latencies_ms = {name: {} for name in names}
        for name in self._arms.keys() - {INCUMBENT, *names}:
            self._leave(name)
        if self._waiting_ms is not None:
            self._take_blocks(self._waiting_ms, replace(timing, settle_ms=0.0))
        else:
            self._pass()
        self._record.write_text(json.dumps({"spent_s": self._spent.rounded()}))
        return {
            name: Look(
                weighted_mean(log_ratios, self._weights),
                weighted_latency_ms(self._latencies_ms[name], self._weights),
                name in self._late and len(log_ratios) != self._configs,
                log_ratios,
            )
            for name, log_ratios in self._log_ratios.items()
            if log_ratios and (name in self._arms or name in self._late | self._behind)
        }

    def _pass(self) -> None:
        """Through the perf tests; where all there is has been measured, they stay waiting."""
        self.collect(self._deadline)
        self._await_room()
        self._met, self._measured = [], 0
        stop = self._to_the_next(lambda arm: arm.begin(self._plan.perf, self._deadline, short=True))
        while stop is not None:
            self._met.append(config_name(stop, self._names, self._met))
            if self._only is None or self._met[-1] in self._only:
                estimate_ms = self._measure()
                if self._configs == self._measured == 1:
                    self._waiting_ms = estimate_ms
                    return
            stop = self._to_the_next(lambda arm: arm.go())

    def _await_room(self) -> None:
        """Until those that were ended have given up what they held of the GPU."""
        left_s = max(0.0, self._deadline - time.monotonic())
        with self._spent.on("room"):
            self._server.await_retired(min(ROOM_TIMEOUT_S, left_s))

    def _to_the_next(self, start: Callable[[WorkerSession], None]) -> Stop | None:
        """Where the incumbent waits then, and variants in the same test; others leave.

        One after the other where there may be no room: a test may make its inputs, and a reference,
        of much of the GPU's memory, and what one does for a moment need not fit five times.
        """
        with self._spent.on("inputs"):
            stops = self._stops(start)
        ours = stops.get(INCUMBENT)
        for name, _ in self._each():
            if not _together(stops[name], ours):
                self._leave(name)
        return ours if len(self._arms) > 1 and isinstance(ours, Stop) else None

    def _stops(self, start: Callable[[WorkerSession], None]) -> dict[str, Stop | Pass]:
        stops: dict[str, Stop | Pass] = {}
        begun = set()
        for name, arm in self._each() if self._roomy else ():
            with self._may_leave(name):
                start(arm)
                begun.add(name)
        for name, arm in self._each():
            with self._may_leave(name):
                if name not in begun:
                    start(arm)
                stops[name] = arm.next_stop(self._deadline)
        return stops

    def _measure(self) -> dict[str, float]:
        """All blocks of one config. Returns the estimates of those that stay, in ms a launch."""
        with self._spent.on("first calls"):
            self._call_first()
        with self._spent.on("prepare"):
            estimate_ms = self._prepare()
        self._leave_behind(estimate_ms)
        if len(self._arms) < 2 or not estimate_ms:
            return {}
        known = len(self._plan.perf) if self._only is None else len(self._only)
        expected = max(self._configs or known, self._measured + 1)
        self._take_blocks(estimate_ms, self._timing.of_several(expected, self._measured))
        self._measured += 1
        return estimate_ms

    def _leave_behind(self, estimate_ms: dict[str, float]) -> None:
        """Who is far slower leaves with its estimate: all others would wait for each launch."""
        ours_ms = estimate_ms.get(INCUMBENT, 0.0)
        for name, theirs_ms in list(estimate_ms.items()):
            if ours_ms and theirs_ms > max(LONG_MS, FAR_BEHIND * ours_ms):
                self._log_ratios[name][self._met[-1]] = math.log(ours_ms / theirs_ms)
                self._latencies_ms[name][self._met[-1]] = theirs_ms
                self._behind.add(name)
                self._leave(name)
                del estimate_ms[name]

    def _take_blocks(self, estimate_ms: Mapping[str, float], timing: BlockTiming) -> None:
        """Blocks of all that wait at a config, forward and back."""
        self._await_room()  # nothing else may run
        counts = {}
        for name, arm in self._each():
            with self._may_leave(name), self._spent.on("settle"):
                take = partial(arm.block, deadline=self._deadline)
                sample_ms = timing.settle(take, estimate_ms[name])
                counts[name] = timing.count(estimate_ms[name], sample_ms)
        slow = any(estimate_ms[name] > timing.slow_ms for name, _ in self._each())
        block_ms: dict[str, list[float]] = {name: [] for name in estimate_ms}
        for _ in range(1 if slow else timing.quads):
            there = list(self._arms)
            for name in (*there, *reversed(there)):
                if name in self._arms:
                    with self._may_leave(name), self._spent.on("blocks"):
                        taken = self._arms[name].block(counts[name], self._deadline)
                        block_ms[name].append(statistics.median(taken.samples_ms))
        for name, _ in self._each():
            if name != INCUMBENT:
                seen = Blocks(tuple(block_ms[INCUMBENT]), tuple(block_ms[name]))
                self._log_ratios[name][self._met[-1]] = seen.log_ratio()
                self._latencies_ms[name][self._met[-1]] = middle_ms(seen.candidate_ms)

    def _call_first(self) -> None:
        """Have all compiled, at once where there is room; a tuner chooses when it is prepared.

        Nothing else may run while it does; one that cannot be told to wait is left for then.
        """
        if not self._roomy:
            return
        ordered = []
        for name, arm in self._each():
            tuned = tunes_itself(arm.checkout)
            if not tuned or can_choose_later(arm.checkout):
                with self._may_leave(name):
                    arm.order_first(chooses=not tuned)
                    ordered.append(name)
        for name, arm in self._each():
            if name in ordered:
                with self._may_leave(name):
                    arm.await_first(self._deadline)

    def _prepare(self) -> dict[str, float]:
        """Have all estimated, in ms a launch.

        The incumbent is the first: it says how all are timed, and whether they launch a kernel.
        Nobody is prepared where it launches none in what a test times by itself. A variant may take
        half of what is left: one that compiles for long leaves, and the others are seen.
        """
        method: str | None = None
        processor: int | None = None
        launched = False
        estimate_ms: dict[str, float] = {}
        for name, arm in self._each():
            with self._may_leave(name):
                now = time.monotonic()
                half = self._deadline if name == INCUMBENT else now + (self._deadline - now) / 2
                prepared = arm.prepare(method, half, processor)
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
        except WorkerTimedOut:
            self._leave(name, late=True)
        except WorkerError:
            self._leave(name)

    def _leave(self, name: str, *, late: bool = False) -> None:
        """End a worker; without the incumbent there is nothing to compare with, and all leave."""
        for gone in list(self._arms) if name == INCUMBENT else [name]:
            if arm := self._arms.pop(gone, None):
                if late:
                    self._late.add(gone)
                arm.abandon()


def _together(stop: Stop | Pass, ours: Stop | Pass | None) -> bool:
    """In the same test as the incumbent, or at the end with it, and nothing has failed."""
    if isinstance(ours, Stop):
        return stop == ours
    return isinstance(stop, Pass) and not stop.not_passed()
