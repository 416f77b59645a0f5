"""The judge of a run: asks the frozen tests about checkouts, with pytest in forked workers."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from agent.errors import WorkerError
from agent.frozen_tests import TestPlan
from agent.harness.discovery import PERF
from agent.harness.measuring.ahead import ALL
from agent.harness.measuring.block_timing import BlockTiming
from agent.harness.measuring.examiner import Examiner
from agent.harness.measuring.failures import (
    all_skipped,
    crash,
    import_failure,
    test_failure,
    worker_failure,
)
from agent.harness.measuring.further_gpus import FurtherGpus
from agent.harness.measuring.gpu import GpuWatch
from agent.harness.measuring.interleaved_screen import INCUMBENT
from agent.harness.measuring.line_ups import LineUps
from agent.harness.measuring.pair_workers import most_ahead
from agent.harness.measuring.pairs import WorkerPairs
from agent.harness.measuring.records import (
    RecordError,
    of_the_kernel,
    read_records,
    short_names,
)
from agent.harness.measuring.result_check import AS_PRECISE, Allowance
from agent.harness.measuring.side_by_side import WorkerCount
from agent.harness.measuring.timed_calls import FreshMs, unless_remembered
from agent.harness.measuring.timed_pass import PassLimit, TimedPass, costs_of, run_some, waits
from agent.harness.measuring.verifier import Verification, Verifier
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import Checkout, Telling, WorkerSession
from agent.measuring.blocks import RawPair
from agent.measuring.decision import Rules
from agent.measuring.looks import ComparisonPlan
from agent.measuring.measurement import Calibration, Failure, calibrate, measure, unmeasured
from agent.measuring.pair_cost import PairTime
from agent.measuring.screening import Look
from agent.measuring.statistics import (
    Comparison,
    middle_ms,
    weighted_latency_ms,
    weighted_mean,
)
from agent.measuring.subset import Subset


class PytestJudge:
    """See `agent.harness.measuring.judge`."""

    def __init__(
        self,
        server: ForkServer,
        plan: TestPlan,
        *,
        framework: str,
        rules: Rules,
        logs: Path,
        watch: GpuWatch | None = None,
        other_layouts: bool = True,
        candidate_server: ForkServer | None = None,
        correctness_workers: int | None = None,
        further: FurtherGpus | None = None,
    ) -> None:
        self._server = server
        self._candidate_server = candidate_server
        self._tests = plan
        self._compared = plan
        self._only: frozenset[str] | None = None
        self._names = short_names(plan.perf)
        self._framework = framework
        self._rules = rules
        self._logs = logs
        self._watch = watch
        self._further = further or FurtherGpus()
        self._plan = ComparisonPlan()
        if watch is None:  # it stays noisy, and what it measures ranks nothing for a GPU
            shortest = self._plan.calibration_looks[:1]
            self._plan = replace(self._plan, calibration_looks=shortest)
        self._held_share: float | None = None
        self._early: WorkerPairs | None = None
        """Of the comparison that is prepared."""
        self._numbers = itertools.count(1)
        self._examiner = Examiner(
            server,
            lambda: self._compared,
            self._new_log,
            other_layouts=other_layouts,
            on_gpu=watch is not None,
        )
        self._verifier = Verifier(server, self._examiner, self._new_log)
        self._verifier.most = WorkerCount.of(correctness_workers)

    def close(self) -> None:
        """End the processes that it keeps from one question to the next."""
        self._forget_early()
        self._examiner.close()

    def leave_out(self, nodeids: Collection[str]) -> None:
        """Do without the tests that skipped themselves at the baseline, or were not reached."""
        if left := set(nodeids):
            self._tests = replace(
                self._tests,
                correctness=tuple(n for n in self._tests.correctness if n not in left),
                perf=tuple(n for n in self._tests.perf if n not in left),
            )

    def compare_on(self, subset: Subset | None) -> None:
        """Compare on these configs only; on all where there is no subset."""
        self._only = frozenset(subset.configs) if subset else None
        chosen = set(subset.tests if subset else self._tests.perf)
        perf = tuple(nodeid for nodeid in self._tests.perf if nodeid in chosen)
        self._compared = replace(self._tests, perf=perf)

    def weigh(self, weights: Mapping[str, float]) -> None:
        """What the tests of the baseline said; what a candidate's say counts for nothing."""
        self._plan = replace(self._plan, weights=dict(weights))

    def expect_launches(self, nodeids: tuple[str, ...]) -> None:
        """A result that no kernel of the file computed is not the candidate's."""
        self._verifier.launching = frozenset(nodeids)

    def verify_in(self, workers: int, forerun: bool = False) -> None:
        """As many as the baseline found the tests to pass in; without a GPU nothing is compiled."""
        self._verifier.workers = workers
        may_forerun = forerun and self._watch is not None
        self._verifier.forerunners = self._verifier.most.most - 1 if may_forerun else 0

    def verify(
        self,
        checkout: Checkout,
        deadline: float,
        *,
        may_skip: bool = False,
        origin: Checkout | None = None,
        allowance: Allowance = AS_PRECISE,
        incumbent: Checkout | None = None,
        tell: Telling | None = None,
        as_timed: bool = False,
    ) -> Verification | Failure:
        """Every correctness test must pass; then what is timed is examined. See `Verifier`.

        The workers of a comparison with the incumbent collect beside that, where they can write
        nothing that would have to be noticed.
        """
        self._forget_early()
        if incumbent is not None and self._server.confinement.strict:
            self._early = self._pairs(incumbent, checkout, deadline, ahead=True, examines=True)
            self._early.ahead.begin_early(self._plan.sure_after)
        outcome = self._verifier.verify(
            self._tests,
            checkout,
            deadline,
            may_skip=may_skip,
            origin=origin,
            allowance=allowance,
            tell=tell,
            as_timed=as_timed,
        )
        if isinstance(outcome, Failure):
            self._forget_early()
        return outcome

    def _forget_early(self) -> None:
        """End what is prepared for a comparison that does not come."""
        if self._early is not None:
            self._early.close()
        self._early = None

    def time(
        self,
        checkout: Checkout,
        deadline: float,
        *,
        may_skip: bool = False,
        limit: PassLimit | None = None,
    ) -> TimedPass | Failure:
        """Run the perf tests once; twice, where they do not warm up as `tile_bench` does."""
        whole = perf = self._compared.perf
        self._forget_early()
        begin = time.monotonic()
        try:
            with self._timing_worker(checkout) as arm:
                if problem := import_failure(arm, deadline):
                    return problem
                start_s = time.monotonic() - begin
                for _ in range(2):
                    done = run_some(arm, perf, deadline, limit, self._framework)
                    skipped = done.skipped(checkout.has_module) if may_skip else ()
                    ran = [test for test in done.tests if test.nodeid not in skipped]
                    if bad := [test for test in ran if test.outcome != "passed"]:
                        return test_failure(bad)
                    if not ran:
                        return all_skipped(done.tests, PERF)
                    ran = of_the_kernel(ran)
                    if all(waits(test) for test in ran):
                        break
                    perf, limit = tuple(test.nodeid for test in done.tests), None
        except WorkerError as problem:
            return worker_failure(problem, correct=True)
        reached = {test.nodeid for test in done.tests}
        try:
            return TimedPass(
                records=read_records(ran, self._framework, self._names),
                pass_s=done.seconds,
                start_s=round(start_s, 4),
                skipped=skipped,
                costs=costs_of(ran, self._framework, self._names),
                launches=done.launches,
                left_out=tuple(nodeid for nodeid in whole if nodeid not in reached),
            )
        except RecordError as problem:
            return crash(str(problem))

    def calibrate(
        self,
        checkout: Checkout,
        deadline: float,
        after_first: Callable[[PairTime], None] = lambda _: None,
        until: float = math.inf,
    ) -> Calibration | Failure:
        """Compare a checkout with itself: what differs then is noise."""
        self._forget_early()
        outcome = self._calibrate(checkout, deadline, after_first, until)
        if self._makes_room(outcome):
            outcome = self._calibrate(checkout, deadline, after_first, until)
        return outcome

    def _calibrate(
        self,
        checkout: Checkout,
        deadline: float,
        after_first: Callable[[PairTime], None],
        until: float,
    ) -> Calibration | Failure:
        begin = time.monotonic()
        with self._pairs(checkout, checkout, deadline, ahead=True) as pairs:
            outcome = calibrate(
                pairs,
                self._plan,
                after_first=lambda: after_first(pairs.times[-1]),
                within_budget=lambda: time.monotonic() + pairs.longest_s < until,
            )
        self._held_share = pairs.ahead.held_share
        if isinstance(outcome, Failure):
            return outcome
        return replace(
            outcome,
            setting=self.setting(),
            launched=pairs.launched is not False,
            pair_s=round((time.monotonic() - begin) / outcome.pairs, 3),
            pair_time=PairTime.mean(pairs.times),
        )

    def _makes_room(self, outcome: object) -> bool:
        """Whether a test ran out of memory that others held; from now on they do not."""
        if not (isinstance(outcome, Failure) and outcome.lacks_memory) or self._held_share == ALL:
            return False
        self._held_share, self._examiner.in_turn = ALL, True
        return True

    def setting(self) -> str:
        """Driver, clock and power limits now; a change of them makes a calibration stale."""
        return self._watch.setting() if self._watch else ""

    def quick_compare(
        self, incumbent: Checkout, variant: Checkout, quads: int, deadline: float
    ) -> Look | Failure:
        """One process pair; of tests that time themselves, one pass of each arm."""
        self._forget_early()
        raw = self._quick_pair(incumbent, variant, quads, deadline)
        if self._makes_room(raw):
            raw = self._quick_pair(incumbent, variant, quads, deadline)
        if isinstance(raw, Failure):
            return raw
        try:
            seen, weights = raw.blocks(), self._plan.weights
            log_ratios = {n: b.log_ratio() for n, b in seen.items()}
            log_ratio = weighted_mean(log_ratios, weights)
            latencies_ms = {n: middle_ms(b.candidate_ms) for n, b in seen.items()}
            latency_ms = weighted_latency_ms(latencies_ms, weights)
            return Look(log_ratio, latency_ms, log_ratios=log_ratios)
        except ValueError as problem:
            return unmeasured(str(problem))

    def _quick_pair(
        self, incumbent: Checkout, variant: Checkout, quads: int, deadline: float
    ) -> RawPair | Failure:
        source = self._pairs(incumbent, variant, deadline)
        source.timing = self._with_quads(source.timing, quads)
        source.passes = 1
        return source.pair(0)

    def line_ups(
        self, incumbent: Checkout, variants: Mapping[str, Checkout], configs: int | None = None
    ) -> LineUps:
        """A few at a time, all workers alive; the blocks go through them forward and back."""
        self._forget_early()
        self._further.start_soon()
        timing = self._pairs(incumbent, incumbent, math.inf).timing
        return LineUps(
            self._server,
            self._compared,
            {INCUMBENT: incumbent, **variants},
            partial(self._new_log, "screen"),
            partial(self._with_quads, timing),
            self._names,
            self._only,
            configs,
            self._plan.weights,
            self._held_share,
            self._further,
        )

    def compare(
        self,
        incumbent: Checkout,
        candidate: Checkout,
        calibration: Calibration | None,
        deadline: float,
        *,
        attempts: int = 1,
    ) -> Comparison | Failure:
        """Compare two checkouts by the protocol of `agent.measuring.measurement`."""
        early, self._early = self._early, None
        if early is not None and not early.is_of(incumbent, candidate, self._compared, self._only):
            early.close()
            early = None
        new = partial(self._pairs, incumbent, candidate, deadline, ahead=True, examines=True)
        plan = replace(self._plan, attempts=attempts)

        def measured() -> tuple[Comparison | Failure, FreshMs]:
            nonlocal early
            begun, early = early, None
            with begun or new() as source:
                source.deadline = deadline
                outcome = measure(source, self._rules, plan, calibration)
            if self._makes_room(outcome):
                with new() as source:
                    outcome = measure(source, self._rules, plan, calibration)
            return outcome, source.fresh_ms

        return measured()[0] if self._watch is None else unless_remembered(measured)

    def _pairs(
        self,
        incumbent: Checkout,
        candidate: Checkout,
        deadline: float,
        *,
        ahead: bool = False,
        examines: bool = False,
    ) -> WorkerPairs:
        return WorkerPairs(
            server=self._server,
            candidate_server=self._candidate_server,
            incumbent=incumbent,
            candidate=candidate,
            plan=self._compared,
            framework=self._framework,
            logs=self._logs,
            deadline=deadline,
            watch=self._watch,
            comparer=self._examiner.comparer if examines else None,
            least_ms=self._examiner.least_ms if examines else None,
            names=self._names,
            only=self._only,
            numbers=self._numbers,
            most_ahead=most_ahead() if ahead else 0,
            room=self._held_share,
        )

    def _with_quads(self, timing: BlockTiming, quads: int) -> BlockTiming:
        """So many ABBA orders; without a GPU as many as ever."""
        return replace(timing, quads=quads) if self._watch else timing

    def _timing_worker(self, checkout: Checkout) -> WorkerSession:
        perf, log = self._compared.perf, self._new_log("time")
        arguments = self._tests.arguments_with(perf)
        return WorkerSession(self._server, checkout, log, arguments=arguments, tests=perf)

    def _new_log(self, purpose: str) -> Path:
        return self._logs / f"{next(self._numbers):04d}-{purpose}.log"
