"""Real process pairs: two workers, one over each checkout, measured in turn.

Tests that have something timed in a way that is known (`tile_bench`, `triton.testing.do_bench`,
pytest-benchmark and others) wait there, and the blocks of both arms alternate within the same
second. Tests that time in ways of their own cannot be stopped inside; their block is one whole pass
of the perf tests.
"""

from __future__ import annotations

import itertools
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import InitVar, asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Self

from agent.errors import WorkerDied, WorkerError
from agent.frozen_tests import TestPlan
from agent.harness.measuring.ahead import Ahead
from agent.harness.measuring.arms import ArmFailed, at_arm, to_the_next
from agent.harness.measuring.block_timing import BlockTiming
from agent.harness.measuring.comparer import Comparer, NoRoom
from agent.harness.measuring.failures import (
    blame,
    crash,
    import_failure,
    paired_failure,
    tampering,
    worker_failure,
)
from agent.harness.measuring.gpu import GpuWatch
from agent.harness.measuring.pair_workers import Pair, PairWorkers
from agent.harness.measuring.passes import WholePasses
from agent.harness.measuring.records import config_name, records_something, short_names
from agent.harness.measuring.spent import AHEAD, PairSpent
from agent.harness.measuring.timed_block import timed_block
from agent.harness.measuring.timed_calls import (
    check_block,
    check_launches,
    check_results,
    checked_orders,
)
from agent.harness.measuring.warm_launches import WarmLaunches, warm_launches
from agent.harness.processes.call_orders import WarmLaunch
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.results import Pass, PreparedTiming, Stop
from agent.harness.processes.worker_session import Checkout, WorkerSession, tunes_itself
from agent.measuring.blocks import ConfigBlocks, RawPair
from agent.measuring.measurement import Failure
from agent.measuring.pair_cost import PairTime
from agent.measuring.statistics import middle_ms

ABBA = (True, False, False, True)
BAAB = (False, True, True, False)
"""True is the incumbent's block. The pairs take the orders in turn."""
MOST_PICKED = 3
"""Calls on the same fresh bytes; the last is looked at, and its place tells it nothing."""
MARGIN = 1.5
"""Times the longest pair, what the next one may take: past the deadline its workers are killed."""


@dataclass
class WorkerPairs:
    """A source of pairs for `agent.measuring.measurement.measure`."""

    server: ForkServer
    incumbent: Checkout
    candidate: Checkout
    plan: TestPlan
    framework: str
    logs: Path
    deadline: float
    candidate_server: ForkServer | None = None
    """Forks the candidate's workers, where the arms differ by their variables."""
    watch: GpuWatch | None = None
    comparer: Callable[[], Comparer] | None = None
    """Gives what compares results of timed calls; nobody does where it is None."""
    least_ms: Callable[[Stop, str, float], float] | None = None
    """Timing, method, deadline -> what the device takes to write the results alone."""
    timing: BlockTiming = field(default_factory=BlockTiming)
    names: Mapping[str, str] = field(default_factory=dict)
    """Node id -> what its configs are called; by the plan's own perf tests where there are none."""
    only: frozenset[str] | None = None
    """The configs that are measured; None: all."""
    passes: int = 2
    """Passes of each arm, of tests that time in ways of their own."""
    most_ahead: InitVar[int] = 0
    """Pairs that may start while one prepares. Use the source in a `with` then."""
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    longest_s: float = 0.0
    """Wall time of the longest pair: the first of a look starts the workers of the others."""
    times: list[PairTime] = field(default_factory=list)
    """Where the time of each pair went."""
    spent: PairSpent = field(default_factory=PairSpent)
    """What the present pair's time went to."""
    launched: bool | None = None
    """Whether the incumbent launched a kernel of its file in anything that was timed; None where
    the tests time themselves, and nobody looked."""
    room: InitVar[float | None] = None
    """Of the GPU's memory, the most that two waiting arms took; None where none were seen."""
    fresh_ms: dict[tuple[str, bool], list[float]] = field(default_factory=dict)
    """(config, incumbent?) -> times of calls on bytes that no call before had seen."""
    _workers: PairWorkers = field(init=False)
    ahead: Ahead = field(init=False)
    """The pairs that wait for their turn."""
    _knows_room: bool = field(init=False, default=False)
    """Whether all configs of a pair have been seen to fit."""
    _begun: bool = field(init=False, default=False)

    def __post_init__(self, most_ahead: int, room: float | None) -> None:
        if self.watch is None:
            self.timing = self.timing.on_cpu()
        self.names = self.names or short_names(self.plan.perf)
        checkouts = {True: self.incumbent, False: self.candidate}
        self._workers = PairWorkers(
            {True: self.server, False: self.candidate_server or self.server},
            checkouts,
            self.plan,
            self.logs,
            self.numbers,
        )
        tunes = any(map(tunes_itself, checkouts.values()))
        self.ahead = Ahead(self._workers, self.watch, most_ahead, tunes, room)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers of pairs that were not taken."""
        self._workers.forget_waiting()

    def is_of(
        self, incumbent: Checkout, candidate: Checkout, plan: TestPlan, only: frozenset[str] | None
    ) -> bool:
        """Whether it compares these two, on these configs."""
        given = (self.incumbent, self.candidate, self.plan, self.only)
        return given == (incumbent, candidate, plan, only)

    def pair(self, number: int, following: int = 0) -> RawPair | Failure:
        """Fork both workers at once, then let one at a time work."""
        begin = time.monotonic()
        self._knows_room = self.ahead.held_share is not None
        order = BAAB if number % 2 else ABBA
        whose = True
        self.spent = PairSpent()
        try:
            if self._workers.none_wait or not self._begun:
                self._begun = True
                with self.spent.on(AHEAD):
                    expected = following if self.has_time() else 0
                    self.spent.ahead = self.ahead.begin(expected, self.deadline)
            with self._workers.taken() as pair:
                with self.spent.on("collect"):
                    for whose, arm in pair.arms.items():
                        if problem := import_failure(arm, self.deadline):
                            return blame(problem, incumbent=whose)
                if not self.ahead.is_roomy:
                    with self.spent.on("room"):
                        self._workers.await_retired()
                raw = self._measure(pair, order)
            if isinstance(raw, RawPair):
                self._record(raw)
                self.times.append(self.spent.pair_time(time.monotonic() - begin))
            return raw
        except ArmFailed as end:
            return blame(end.failure, incumbent=end.incumbent)
        except WorkerError as problem:
            return blame(worker_failure(problem, correct=True), incumbent=whose)
        finally:
            self.longest_s = max(self.longest_s, time.monotonic() - begin)

    def _record(self, raw: RawPair) -> None:
        """Keep every block as it was measured, with clock, power and temperature."""
        file = self.logs / f"{next(self.numbers):04d}-pair.json"
        file.write_text(json.dumps(asdict(raw) | {"spent_s": self.spent.rounded()}))

    def has_time(self) -> bool:
        """Whether a pair that takes longer than any so far still ends before the deadline."""
        return time.monotonic() + MARGIN * self.longest_s < self.deadline

    def pause(self, seconds: float) -> None:
        """Sleep, but not past the deadline."""
        time.sleep(max(0.0, min(seconds, self.deadline - time.monotonic())))

    # --- stepped --------------------------------------------------------------------------------

    def _measure(self, pair: Pair, order: Sequence[bool]) -> RawPair | Failure:
        arms = pair.arms
        configs: list[ConfigBlocks] = []
        left_out: list[str] = []
        waited: set[str] = set()
        begin = time.monotonic()
        first = partial(WorkerSession.begin, nodeids=self.plan.perf, deadline=self.deadline)
        waits = partial(to_the_next, arms, deadline=self.deadline, in_turn=self.ahead.is_tight)
        with self.spent.on("inputs"):
            stops = pair.stops or waits(first)
        while True:
            ours, theirs = stops[True], stops[False]
            if isinstance(ours, Pass) and isinstance(theirs, Pass):
                break
            if not isinstance(ours, Stop) or ours != theirs:
                return self._out_of_step(arms, ours, theirs)
            self.spent.on_test(ours.nodeid, time.monotonic() - begin)
            name = config_name(ours, self.names, [*left_out, *(c.config for c in configs)])
            if self.only is None or name in self.only:
                blocks = self._config(arms, order, ours, name, len(configs))
                configs += [blocks] if blocks else []
                self.spent.configs += 1
            else:
                left_out.append(name)
            waited.add(ours.nodeid)
            begin = time.monotonic()
            with self.spent.on("inputs"):
                stops = waits(WorkerSession.go)
        for whose in (True, False):
            done = stops[whose]
            if isinstance(done, Pass) and (bad := done.not_passed()):
                return paired_failure(bad, incumbent=whose)
        if (tampered := tampering(ours, theirs)) is not None:
            return tampered
        chosen = {w: d.chosen for w, d in stops.items() if isinstance(d, Pass) and d.chosen}
        tests = [test for test in ours.tests if test.nodeid not in waited]
        for test in tests:
            self.spent.on_test(test.nodeid, test.seconds)
        if configs and not records_something(tests, self.framework):
            return RawPair(tuple(configs), chosen)
        passes = WholePasses(
            tuple(test.nodeid for test in tests) if configs else self.plan.perf,
            self.names,
            self.framework,
            self.deadline,
            self.watch,
            self.spent,
        )
        taken = passes.take(arms, order[: 2 * self.passes])
        if isinstance(taken, Failure):
            return taken
        return RawPair((*configs, *taken.configs), chosen | dict(taken.chosen))

    def _out_of_step(
        self, arms: dict[bool, WorkerSession], ours: Stop | Pass, theirs: Stop | Pass
    ) -> Failure:
        """The arms measure different things: one has failed, or records a changing set."""
        stops, ends = {True: ours, False: theirs}, dict[bool, Pass]()
        for whose in sorted(stops, key=lambda whose: isinstance(stops[whose], Stop)):
            with at_arm(whose):
                ends[whose] = arms[whose].finish(stops[whose], self.deadline)
            if bad := ends[whose].not_passed():
                return paired_failure(bad, incumbent=whose)
        # Where theirs ends before ours: it may have replaced what would wait.
        tampered = tampering(ends[True], theirs) if isinstance(theirs, Pass) else None
        return tampered or crash("the two arms recorded different sets of configs")

    def _config(
        self,
        arms: dict[bool, WorkerSession],
        order: Sequence[bool],
        stop: Stop,
        name: str,
        before: int,
    ) -> ConfigBlocks | None:
        """All blocks of one config. Both arms are timed by the method the incumbent calls for.

        None where the incumbent launches no kernel of the file in what a test times by itself.

        Args:
            arms: both workers, which wait there.
            order: whose block comes first.
            stop: where they wait.
            name: of the config.
            before: how many configs of this pair were measured already.
        """
        expected = max(len(self.plan.perf) if self.only is None else len(self.only), before + 1)
        timing = self.timing.of_several(expected, before)
        deadline, processor = self.deadline, None
        estimate_ms: dict[bool, float] = {}
        prepared: dict[bool, PreparedTiming] = {}
        self._call_first(arms)
        for attempt in (None, "OnGpu"):
            method, problem = attempt, ""
            for whose in (True, False):
                with at_arm(whose), self.spent.on("prepare"):
                    answer = arms[whose].prepare(method, deadline, processor)
                if isinstance(answer, str):
                    problem = answer
                    break
                if whose and not answer.method:
                    return None
                prepared[whose] = answer
                method, estimate_ms[whose] = answer.method, answer.estimate_ms
                processor = answer.processor
            if not problem:
                break
        else:
            raise WorkerDied(f"{name} cannot be timed: {problem}")
        self.launched = bool(self.launched) or prepared[True].launched
        with at_arm(False):
            check_launches(name, prepared[True], prepared[False], arms[False].checkout.kernel)
        with self.spent.on(AHEAD):
            self.ahead.settle(deadline, known_to_fit=expected == 1 or self._knows_room)
        count = {}
        for whose in order[:2]:
            with at_arm(whose), self.spent.on("settle"):
                take = partial(arms[whose].block, deadline=deadline)
                sample_ms = timing.settle(take, estimate_ms[whose])
            replays = not prepared[whose].calls
            count[whose] = timing.count(estimate_ms[whose], sample_ms, replays=replays)
        blocks = []
        block = partial(timed_block, deadline=deadline, watch=self.watch, spent=self.spent)
        quads = 1 if max(estimate_ms.values()) > timing.slow_ms else timing.quads
        seen = len(self.fresh_ms.get((name, False), ()))
        checked = checked_orders(quads, seen) if self.comparer else set()
        seed = secrets.randbelow(2**31)
        for quad in range(quads):
            for whose in order if quad % 2 == 0 else [not w for w in order]:
                with at_arm(whose), self.spent.on("blocks"):
                    taken = block(arms[whose], count[whose], prepared[whose], incumbent=whose)
                blocks.append(taken)
            if quad in checked:  # inputs move at odd seeds: in one of two checks, then
                self._check_results(arms, name, prepared, seed := (seed + 1) % 2**31)
        warm = WarmLaunches()
        if self.watch:
            reported_ms = {
                whose: middle_ms([b.latency_ms for b in blocks if b.incumbent is whose])
                for whose in (True, False)
            }
            sizes = {w: timing.burst(estimate_ms[w], count[w]) for w in (True, False)}
            with self.spent.on("warm launches"):
                warm = warm_launches(partial(self._warm, arms, sizes), reported_ms)
        method = prepared[True].method
        with self.spent.on("least time"):
            least_ms = self.least_ms(stop, method, deadline) if self.least_ms else 0.0
        return ConfigBlocks(name, tuple(blocks), warm.ms, least_ms, warm.keeps_host)

    def _warm(
        self, arms: dict[bool, WorkerSession], sizes: dict[bool, int], whose: bool
    ) -> WarmLaunch:
        with at_arm(whose):
            return arms[whose].warm_launch(sizes[whose], self.deadline)

    def _call_first(self, arms: dict[bool, WorkerSession]) -> None:
        """Have both compile at once, where neither tunes itself and there is room for copies."""
        if self.watch is None:
            return
        self.ahead.saw(self.watch.used_share())
        if self.ahead.is_roomy and not self.ahead.tunes:
            with self.spent.on("first calls"):
                for whose in (True, False):
                    with at_arm(whose):
                        arms[whose].order_first()
                for whose in (True, False):
                    with at_arm(whose):
                        arms[whose].await_first(self.deadline)

    def _check_results(
        self,
        arms: dict[bool, WorkerSession],
        name: str,
        prepared: dict[bool, PreparedTiming],
        seed: int,
    ) -> None:
        """Both arms time one call on the same fresh bytes, and do not know that it is seen.

        Afterwards they have the test's bytes again: the blocks before and after are alike.
        """
        assert self.comparer is not None
        fewest = 1 + ((name, True) not in self.fresh_ms)
        calls = secrets.choice(range(fewest, MOST_PICKED + 1))  # one at least after another call
        with self.spent.on("results"):
            for whose in (True, False):
                with at_arm(whose):
                    picked = arms[whose].pick(seed, calls, self.deadline)
                    check_block(prepared[whose], calls, picked)
                    self.fresh_ms.setdefault((name, whose), []).append(picked.samples_ms[0])
            with suppress(NoRoom):
                with at_arm(True):
                    self.comparer().keep(expected := arms[True].show(self.deadline), self.deadline)
                with at_arm(False):
                    shown = arms[False].show(self.deadline)
                    found = self.comparer().compare(shown, self.deadline)
                    check_results(name, expected, shown, found)
            for whose in (True, False):
                with at_arm(whose):
                    arms[whose].rest(self.deadline)
