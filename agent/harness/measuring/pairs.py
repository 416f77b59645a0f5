"""Real process pairs: two workers, one over each checkout, measured in turn.

Tests that use the `tile_bench` fixture wait inside it, and the blocks of both arms alternate there
within the same second. Tests that time themselves (TileGym's, pytest-benchmark's) cannot be
stopped inside; their block is one whole pass of the perf tests.
"""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from agent.errors import NoLaunch, WorkerDied, WorkerError, WorkerTimedOut
from agent.events import TestPlan
from agent.harness.measuring.failures import (
    blame,
    crash,
    import_failure,
    test_failure,
    worker_failure,
)
from agent.harness.measuring.gpu import GpuWatch
from agent.harness.measuring.records import RecordError, numbered, read_records, short_names
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.results import Pass
from agent.harness.processes.worker_session import Checkout, Stop, WorkerSession
from agent.measuring.blocks import Block, ConfigBlocks, RawPair
from agent.measuring.measurement import Failure, unmeasured

ABBA = (True, False, False, True)
BAAB = (False, True, True, False)
"""True is the incumbent's block. The pairs take the orders in turn."""


@dataclass(frozen=True)
class BlockTiming:
    """How long the blocks are."""

    block_ms: float = 20.0
    """Short, and many of them: when a power cap moves the clock, blocks that alternate faster than
    it moves see the same clock. On an H200, a matrix product scattered by 1.3 to 1.4 % a pair with
    eight blocks of 150 ms or four of 300, and by 0.6 % with twenty-four of 20."""
    settle_ms: float = 100.0
    """Uncounted work of each arm before its first block, for a GPU's clock to settle; on a CPU it
    is as long as a block."""
    quads: int = 6
    """ABBA orders a pair and config; of slow launches, and on a CPU, one."""
    least_samples: int = 25
    least_slow_samples: int = 3
    """For kernels of more than `slow_ms`."""
    slow_ms: float = 5.0
    flush_ms: float = 0.1
    """About what overwriting the L2 cache adds to a sample."""

    def count(self, budget_ms: float, estimate_ms: float) -> int:
        """How many samples a block of `budget_ms` takes."""
        least = self.least_slow_samples if estimate_ms > self.slow_ms else self.least_samples
        return max(least, min(1000, int(budget_ms / (estimate_ms + self.flush_ms))))


@dataclass(frozen=True)
class _Workers:
    """The two of a pair."""

    alive: ExitStack
    """They end with it."""
    arms: dict[bool, WorkerSession]


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
    watch: GpuWatch | None = None
    timing: BlockTiming = field(default_factory=BlockTiming)
    passes: int = 2
    """Passes of each arm, of tests that time themselves."""
    forks_ahead: bool = False
    """Where several pairs are to be expected: the next workers start while these prepare. Use the
    source in a `with` then."""
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    last_s: float = 0.0
    """Wall time of the last pair."""
    spent_s: dict[str, float] = field(default_factory=dict)
    """What the present pair's time went to."""
    launched: bool | None = None
    """Whether the incumbent launched a kernel of its file in anything that was timed; None where
    the tests time themselves, and nobody looked."""
    _ahead: _Workers | None = None
    """Those of the next pair, which collect while nothing is timed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._forget_ahead()

    def pair(self, number: int) -> RawPair | Failure:
        """Fork both workers at once, then let one at a time work."""
        begin = time.monotonic()
        order = BAAB if number % 2 else ABBA
        whose = True
        self.spent_s = {}
        try:
            workers, self._ahead = self._ahead or self._fork(), None
            with workers.alive:
                with self._spending("collect"):
                    for whose, arm in workers.arms.items():
                        if problem := import_failure(arm, self.deadline):
                            return blame(problem, incumbent=whose)
                raw = self._measure(workers.arms, order)
            if isinstance(raw, RawPair):
                self._record(raw)
            return raw
        except _ArmFailed as end:
            return blame(end.failure, incumbent=end.incumbent)
        except WorkerError as problem:
            return blame(worker_failure(problem, correct=True), incumbent=whose)
        finally:
            self.last_s = time.monotonic() - begin

    def _fork_ahead(self) -> None:
        """Have the workers of the next pair begin to collect, where there is time for a pair."""
        if self.forks_ahead and self._ahead is None and self.has_time():
            with suppress(WorkerError):  # the next pair meets it again, and says whose it is
                self._ahead = self._fork()

    def _await_ahead(self) -> None:
        """Wait until they only wait: nothing else may run while blocks are timed."""
        try:
            for arm in self._ahead.arms.values() if self._ahead else ():
                arm.collection(self.deadline)
        except WorkerError:
            self._forget_ahead()

    def _forget_ahead(self) -> None:
        workers, self._ahead = self._ahead, None
        for arm in workers.arms.values() if workers else ():
            arm.kill()

    def _record(self, raw: RawPair) -> None:
        """Keep every block as it was measured, with clock, power and temperature."""
        file = self.logs / f"{next(self.numbers):04d}-pair.json"
        spent_s = {name: round(value, 4) for name, value in self.spent_s.items()}
        file.write_text(json.dumps(asdict(raw) | {"spent_s": spent_s}))

    @contextmanager
    def _spending(self, name: str) -> Iterator[None]:
        """Add the time inside to one of the pair's items."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.spent_s[name] = self.spent_s.get(name, 0.0) + time.monotonic() - begin

    def has_time(self) -> bool:
        """Whether a pair as long as the last one ends before the deadline."""
        return time.monotonic() + 1.2 * self.last_s < self.deadline

    def pause(self, seconds: float) -> None:
        """Sleep, but not past the deadline."""
        time.sleep(max(0.0, min(seconds, self.deadline - time.monotonic())))

    # --- stepped --------------------------------------------------------------------------------

    def _measure(self, arms: dict[bool, WorkerSession], order: Sequence[bool]) -> RawPair | Failure:
        names = short_names(self.plan.perf)
        configs: list[ConfigBlocks] = []
        stops = {}
        for whose in (True, False):
            with _at(whose):
                arms[whose].begin(self.plan.perf, self.deadline)
        while True:
            for whose in (True, False):
                with _at(whose), self._spending("inputs"):
                    stops[whose] = arms[whose].next_stop(self.deadline)
            ours, theirs = stops[True], stops[False]
            if isinstance(ours, Pass) and isinstance(theirs, Pass):
                break
            if not isinstance(ours, Stop) or ours != theirs:
                return self._out_of_step(ours, theirs)
            name = names[ours.nodeid] + ("" if ours.config == "forward" else f" {ours.config}")
            configs.append(self._config(arms, order, numbered(name, [c.config for c in configs])))
            for arm in arms.values():
                arm.go()
        for whose in (True, False):
            done = stops[whose]
            if isinstance(done, Pass) and (bad := done.not_passed()):
                return blame(test_failure(bad), incumbent=whose)
        if configs:
            chosen = {w: d.chosen for w, d in stops.items() if isinstance(d, Pass) and d.chosen}
            return RawPair(tuple(configs), chosen)
        return self._passes(arms, order)

    def _out_of_step(self, ours: Stop | Pass, theirs: Stop | Pass) -> Failure:
        """The arms measure different things: one has failed, or records a changing set."""
        for whose, done in ((True, ours), (False, theirs)):
            if isinstance(done, Pass) and (bad := done.not_passed()):
                return blame(test_failure(bad), incumbent=whose)
        return crash("the two arms recorded different sets of configs")

    def _config(
        self, arms: dict[bool, WorkerSession], order: Sequence[bool], name: str
    ) -> ConfigBlocks:
        """All blocks of one config. Both arms are timed by the method the incumbent calls for."""
        timing, deadline = self.timing, self.deadline
        method: str | None = None
        estimate_ms: dict[bool, float] = {}
        launched: dict[bool, bool] = {}
        self._fork_ahead()
        for attempt in (None, "OnGpu"):
            method, problem = attempt, ""
            for whose in (True, False):
                with _at(whose), self._spending("prepare"):
                    prepared = arms[whose].prepare(method, deadline)
                if isinstance(prepared, str):
                    problem = prepared
                    break
                method, estimate_ms[whose] = prepared.method, prepared.estimate_ms
                launched[whose] = prepared.launched
            if not problem:
                break
        else:
            raise WorkerDied(f"{name} cannot be timed: {problem}")
        self.launched = bool(self.launched) or launched[True]
        if launched[True] and not launched[False]:
            with _at(False):
                raise NoLaunch(f"{name} launches no kernel of {arms[False].checkout.kernel}")
        with self._spending("next pair"):
            self._await_ahead()
        count = {w: timing.count(timing.block_ms, e) for w, e in estimate_ms.items()}
        settle_ms = timing.settle_ms if self.watch else timing.block_ms
        for whose in order[:2]:
            with _at(whose), self._spending("settle"):
                arms[whose].block(timing.count(settle_ms, estimate_ms[whose]), deadline)
        blocks = []
        slow = not self.watch or max(estimate_ms.values()) > timing.slow_ms
        for quad in range(1 if slow else timing.quads):
            for whose in order if quad % 2 == 0 else [not w for w in order]:
                with _at(whose), self._spending("blocks"):
                    blocks.append(self._block(arms[whose], whose, count[whose]))
        warm_ms = {}
        for whose in (True, False) if self.watch else ():
            with _at(whose), self._spending("warm launches"):
                warm_ms[whose] = self._warm_launch(arms[whose], count[whose], estimate_ms[whose])
        return ConfigBlocks(name, tuple(blocks), warm_ms)

    def _block(self, arm: WorkerSession, incumbent: bool, count: int) -> Block:
        begin = time.perf_counter()
        samples_ms = arm.block(count, self.deadline)
        wall_ms = (time.perf_counter() - begin) * 1e3
        with self._spending("telemetry"):
            telemetry = self.watch.look() if self.watch else None
        return Block(
            incumbent=incumbent,
            latency_ms=statistics.median(samples_ms),
            reported_ms=sum(samples_ms),
            wall_ms=wall_ms,
            telemetry=telemetry,
        )

    def _warm_launch(self, arm: WorkerSession, count: int, estimate_ms: float) -> float:
        """The time of a launch by our own clock: the difference between 2N and N launches."""
        size = max(50, count // 4) if estimate_ms < self.timing.slow_ms else 1

        def burst(launches: int) -> float:
            begin = time.perf_counter()
            arm.burst(launches, self.deadline)
            return (time.perf_counter() - begin) * 1e3

        return max(0.0, burst(2 * size) - burst(size)) / size

    # --- pass by pass ---------------------------------------------------------------------------

    def _passes(self, arms: dict[bool, WorkerSession], order: Sequence[bool]) -> RawPair | Failure:
        """Blocks of whole passes, for tests that time themselves. One pass has been run already."""
        blocks: dict[str, list[Block]] = {}
        found: dict[bool, set[str]] = {}
        chosen: dict[bool, Mapping[str, str]] = {}
        for whose in order[: 2 * self.passes]:
            begin = time.perf_counter()
            with _at(whose):
                done = arms[whose].run(self.plan.perf, self.deadline)
            wall_ms = (time.perf_counter() - begin) * 1e3
            if bad := done.not_passed():
                return blame(test_failure(bad), incumbent=whose)
            try:
                records = read_records(done.tests, self.framework)
            except RecordError as problem:
                return blame(crash(str(problem)), incumbent=whose)
            configs = {record.config for record in records}
            if configs != found.setdefault(whose, configs):
                return blame(crash("it recorded a changing set of configs"), incumbent=whose)
            if done.chosen:
                chosen[whose] = done.chosen
            telemetry = self.watch.look() if self.watch else None
            for record in records:
                blocks.setdefault(record.config, []).append(
                    Block(whose, record.latency_ms, record.latency_ms, wall_ms, telemetry)
                )
        if found[True] != found[False]:
            return crash("the two arms recorded different sets of configs")
        taken = tuple(ConfigBlocks(name, tuple(each)) for name, each in blocks.items())
        return RawPair(taken, chosen)

    def _fork(self) -> _Workers:
        with ExitStack() as stack:
            arms = {
                True: stack.enter_context(self._arm(self.incumbent, "incumbent")),
                False: stack.enter_context(self._arm(self.candidate, "candidate")),
            }
            return _Workers(stack.pop_all(), arms)

    def _arm(self, checkout: Checkout, purpose: str) -> WorkerSession:
        return WorkerSession(
            self.server,
            checkout,
            self.logs / f"{next(self.numbers):04d}-{purpose}.log",
            arguments=self.plan.files,
            tests=self.plan.perf,
        )


class _ArmFailed(Exception):
    """Carries a failure out of a measurement, with the arm it belongs to."""

    def __init__(self, failure: Failure, *, incumbent: bool) -> None:
        super().__init__(failure.reason)
        self.failure = failure
        self.incumbent = incumbent


@contextmanager
def _at(incumbent: bool) -> Iterator[None]:
    """While one arm is asked: a worker that fails in the block is that arm's."""
    try:
        yield
    except WorkerTimedOut as problem:
        if not incumbent:
            raise _ArmFailed(worker_failure(problem, correct=True), incumbent=False) from problem
        late = unmeasured(f"the incumbent's perf tests outlast the iteration: {problem}")
        raise _ArmFailed(late, incumbent=False) from problem
    except WorkerError as problem:
        failure = worker_failure(problem, correct=True)
        raise _ArmFailed(failure, incumbent=incumbent) from problem
