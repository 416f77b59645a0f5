"""Asks the frozen tests about a checkout: is it right, how fast is it, which of two is faster.

Expected failures are values: whatever a candidate does wrong comes back as a `Failure`.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from agent.errors import UsageError, WorkerError
from agent.events import Record, TestPlan
from agent.harness.discovery import CORRECTNESS, PERF
from agent.harness.measuring.failures import (
    all_skipped,
    crash,
    import_failure,
    test_failure,
    worker_failure,
)
from agent.harness.measuring.gpu import GpuWatch
from agent.harness.measuring.interleaved_screen import INCUMBENT, InterleavedScreen, groups
from agent.harness.measuring.pairs import WorkerPairs
from agent.harness.measuring.records import RecordError, read_records
from agent.harness.measuring.subset import Cost
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.results import Pass, TestResult
from agent.harness.processes.worker_session import Checkout, WorkerSession
from agent.measuring.decision import Rules, Status
from agent.measuring.measurement import (
    Calibration,
    ComparisonPlan,
    Failure,
    calibrate,
    measure,
    unmeasured,
)
from agent.measuring.screening import Look
from agent.measuring.statistics import Comparison, geometric_mean
from tile_agent_pytest.plugin import PROPERTY

VERIFY = "verify"
"""The purpose of an arm that is to say which tests launch a kernel of the file."""


@dataclass(frozen=True)
class Verification:
    """All frozen correctness tests passed."""

    passed: int
    skipped: tuple[str, ...] = ()
    """Tests that skipped themselves, where that was allowed."""
    launching: tuple[str, ...] = ()
    """Tests that launched a kernel of the file."""
    notes: tuple[str, ...] = ()
    """Kernels that differ from themselves, where that was looked at."""

    def check(self, kernel: str) -> None:
        """Raise `UsageError` where no test launched a kernel of the file: none can judge it."""
        if not self.launching:
            raise UsageError(
                f"no correctness test launches a kernel of {kernel}: "
                "name those that do with --tests"
            )


@dataclass(frozen=True)
class TimedPass:
    """One pass of the perf tests: a record a config, and the wall time of the pass."""

    records: tuple[Record, ...]
    pass_s: float
    skipped: tuple[str, ...] = ()
    """Tests that skipped themselves, where that was allowed."""
    costs: tuple[Cost, ...] = ()
    """What each perf test costs, for choosing those a comparison runs."""


class Judge(Protocol):
    """What the loop asks of a harness. A scripted one stands in for it in the loop's own tests."""

    def leave_out(self, nodeids: tuple[str, ...]) -> None:
        """Do without the tests that skipped themselves at the baseline."""

    def compare_on(self, nodeids: tuple[str, ...]) -> None:
        """Time and compare on these perf tests only; on all when empty."""

    def expect_launches(self, nodeids: tuple[str, ...]) -> None:
        """Of candidates too, these correctness tests must launch a kernel of the file."""

    def verify(
        self, checkout: Checkout, deadline: float, *, may_skip: bool = False
    ) -> Verification | Failure:
        """Run the correctness tests once."""

    def time(
        self, checkout: Checkout, deadline: float, *, may_skip: bool = False
    ) -> TimedPass | Failure:
        """Run the perf tests once, warmed up."""

    def calibrate(self, checkout: Checkout, deadline: float) -> Calibration | Failure:
        """Compare a checkout with itself."""

    def setting(self) -> str:
        """Driver, clock and power limits now; a change of them makes a calibration stale."""

    def quick_compare(
        self, incumbent: Checkout, variant: Checkout, quads: int, deadline: float
    ) -> Look | Failure:
        """One process pair of so many ABBA orders; enough to rank, too little to judge."""

    def interleaved_screen(
        self, incumbent: Checkout, variants: Mapping[str, Checkout], quads: int, deadline: float
    ) -> Mapping[str, Look]:
        """The same of several variants at once; who is missing is to be compared alone."""

    def compare(
        self,
        incumbent: Checkout,
        candidate: Checkout,
        calibration: Calibration | None,
        deadline: float,
    ) -> Comparison | Failure:
        """Compare two checkouts, in fresh process pairs."""


class PytestJudge:
    """The real one: pytest in forked workers."""

    def __init__(
        self,
        server: ForkServer,
        plan: TestPlan,
        *,
        framework: str,
        rules: Rules,
        logs: Path,
        watch: GpuWatch | None = None,
    ) -> None:
        self._server = server
        self._tests = plan
        self._compared = plan
        self._framework = framework
        self._rules = rules
        self._logs = logs
        self._watch = watch
        self._plan = ComparisonPlan()
        self._launching: frozenset[str] = frozenset()
        self._numbers = itertools.count(1)

    def leave_out(self, nodeids: tuple[str, ...]) -> None:
        """Do without the tests that skipped themselves at the baseline."""
        if left := set(nodeids):
            self._tests = replace(
                self._tests,
                correctness=tuple(n for n in self._tests.correctness if n not in left),
                perf=tuple(n for n in self._tests.perf if n not in left),
            )

    def compare_on(self, nodeids: tuple[str, ...]) -> None:
        """Time and compare on these perf tests only; on all when empty."""
        chosen = set(nodeids or self._tests.perf)
        perf = tuple(nodeid for nodeid in self._tests.perf if nodeid in chosen)
        self._compared = replace(self._tests, perf=perf)

    def expect_launches(self, nodeids: tuple[str, ...]) -> None:
        """A result that no kernel of the file computed is not the candidate's."""
        self._launching = frozenset(nodeids)

    def verify(
        self, checkout: Checkout, deadline: float, *, may_skip: bool = False
    ) -> Verification | Failure:
        """Run the correctness tests once; every one of them must pass, by kernels of the file."""
        try:
            with self._arm(checkout, VERIFY, self._tests.correctness, repeat=may_skip) as arm:
                if problem := import_failure(arm, deadline):
                    return problem
                done = arm.run(self._tests.correctness, deadline)
        except WorkerError as problem:
            return worker_failure(problem, correct=False)
        skipped = _skipped(done) if may_skip else ()
        if bad := [test for test in done.not_passed() if test.nodeid not in skipped]:
            return test_failure(bad, correct=False)
        if len(skipped) == len(done.tests):
            return all_skipped(done.tests, CORRECTNESS)
        launching = tuple(test.nodeid for test in done.tests if test.launched)
        if idle := sorted(self._launching.difference(launching, skipped)):
            reason = f"{idle[0]} passes without a launch of a kernel of {checkout.kernel}"
            return Failure(Status.REVERT, correct=False, reason=reason)
        return Verification(len(done.tests) - len(skipped), skipped, launching, done.notes)

    def time(
        self, checkout: Checkout, deadline: float, *, may_skip: bool = False
    ) -> TimedPass | Failure:
        """Run the perf tests once; twice, where they do not warm up as `tile_bench` does."""
        try:
            with self._arm(checkout, "time", self._compared.perf) as arm:
                if problem := import_failure(arm, deadline):
                    return problem
                for _ in range(2):
                    done = arm.run(self._compared.perf, deadline)
                    skipped = _skipped(done) if may_skip else ()
                    ran = [test for test in done.tests if test.nodeid not in skipped]
                    if bad := [test for test in ran if test.outcome != "passed"]:
                        return test_failure(bad)
                    if not ran:
                        return all_skipped(done.tests, PERF)
                    if all(_stepped(test) for test in ran):
                        break
        except WorkerError as problem:
            return worker_failure(problem, correct=True)
        try:
            records = read_records(ran, self._framework)
            costs = tuple(cost for test in ran for cost in _cost(test, self._framework))
            return TimedPass(records, done.seconds, skipped, costs)
        except RecordError as problem:
            return crash(str(problem))

    def calibrate(self, checkout: Checkout, deadline: float) -> Calibration | Failure:
        """Compare a checkout with itself: what differs then is noise."""
        with self._pairs(checkout, checkout, deadline, forks_ahead=True) as pairs:
            outcome = calibrate(pairs, self._plan)
        if isinstance(outcome, Failure):
            return outcome
        return replace(outcome, setting=self.setting(), launched=pairs.launched is not False)

    def setting(self) -> str:
        """Driver, clock and power limits now; a change of them makes a calibration stale."""
        return self._watch.setting() if self._watch else ""

    def quick_compare(
        self, incumbent: Checkout, variant: Checkout, quads: int, deadline: float
    ) -> Look | Failure:
        """One process pair; of tests that time themselves, one pass of each arm."""
        source = self._pairs(incumbent, variant, deadline)
        source.timing = replace(source.timing, quads=quads)
        source.passes = 1
        raw = source.pair(0)
        if isinstance(raw, Failure):
            return raw
        try:
            seen = list(raw.blocks().values())
            log_ratio = math.fsum(b.log_ratio() for b in seen) / len(seen)
            return Look(log_ratio, geometric_mean([t for b in seen for t in b.candidate_ms]))
        except ValueError as problem:
            return unmeasured(str(problem))

    def interleaved_screen(
        self, incumbent: Checkout, variants: Mapping[str, Checkout], quads: int, deadline: float
    ) -> Mapping[str, Look]:
        """A few at a time, all workers alive; the blocks go through them forward and back.

        Half of the time that is left may go into one screen: in it a variant that hangs holds up
        the others.
        """
        timing = replace(self._pairs(incumbent, incumbent, deadline).timing, quads=quads)
        seen: dict[str, Look] = {}
        for names in groups(list(variants)):
            now = time.monotonic()
            line = InterleavedScreen(
                self._server,
                self._compared,
                timing,
                now + (deadline - now) / 2,
                interpreted=self._watch is None,
            )
            logs = {
                name: self._logs / f"{next(self._numbers):04d}-screen.log"
                for name in (INCUMBENT, *names)
            }
            seen |= line.look(incumbent, {name: variants[name] for name in names}, logs)
        return seen

    def compare(
        self,
        incumbent: Checkout,
        candidate: Checkout,
        calibration: Calibration | None,
        deadline: float,
    ) -> Comparison | Failure:
        """Compare two checkouts by the protocol of `agent.measuring.measurement`."""
        with self._pairs(incumbent, candidate, deadline, forks_ahead=True) as source:
            return measure(source, self._rules, self._plan, calibration)

    def _pairs(
        self,
        incumbent: Checkout,
        candidate: Checkout,
        deadline: float,
        *,
        forks_ahead: bool = False,
    ) -> WorkerPairs:
        return WorkerPairs(
            server=self._server,
            incumbent=incumbent,
            candidate=candidate,
            plan=self._compared,
            framework=self._framework,
            logs=self._logs,
            deadline=deadline,
            watch=self._watch,
            numbers=self._numbers,
            forks_ahead=forks_ahead,
        )

    def _arm(
        self, checkout: Checkout, purpose: str, tests: tuple[str, ...], *, repeat: bool = False
    ) -> WorkerSession:
        return WorkerSession(
            self._server,
            checkout,
            self._logs / f"{next(self._numbers):04d}-{purpose}.log",
            arguments=self._tests.files,
            tests=tests,
            detect_launches=purpose == VERIFY,
            repeat=repeat,
        )


def _skipped(done: Pass) -> tuple[str, ...]:
    return tuple(test.nodeid for test in done.tests if test.outcome == "skipped")


def _stepped(test: TestResult) -> bool:
    return any(name == PROPERTY for name, _ in test.properties)


def _cost(test: TestResult, framework: str) -> list[Cost]:
    """What a test costs; nothing of one that times other frameworks only."""
    try:
        shortest_ms = min(record.latency_ms for record in read_records([test], framework))
    except RecordError:
        return []
    return [Cost(test.nodeid, test.seconds, shortest_ms, _stepped(test))]
