"""Whether a checkout is right: by the frozen correctness tests, and by the origin's results.

The candidate's worker runs the tests. Meanwhile the origin's is asked in which other layouts it can
do the tests' calls, and compiles for them; see `other_layouts`. Where compilers take most of the
tests' time, forerunners run them too, each some of them: what they compile the candidate's worker
finds in the cache that workers over one text share. Whatever becomes of them says nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from agent.errors import UsageError, WorkerError
from agent.frozen_tests import TestPlan
from agent.harness.discovery import CORRECTNESS
from agent.harness.measuring.examiner import Examiner
from agent.harness.measuring.failures import (
    OUT_OF_MEMORY,
    all_skipped,
    import_failure,
    test_failure,
    worker_failure,
)
from agent.harness.measuring.pair_workers import ROOM_TIMEOUT_S
from agent.harness.measuring.result_check import AS_PRECISE, Allowance
from agent.harness.measuring.side_by_side import (
    OriginsTests,
    WorkerCount,
    joined,
    sessions,
    shares,
)
from agent.harness.measuring.spent import SpentTime
from agent.harness.measuring.timing_examiner import BesideAnother
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.results import Pass
from agent.harness.processes.worker_session import (
    Checkout,
    PassLooks,
    Telling,
    WorkerSession,
    tunes_for_other_tests,
    tunes_itself,
)
from agent.launches import ObservedLaunch
from agent.measuring.decision import Status
from agent.measuring.measurement import Failure
from agent.suggesting import or_captured_in_run


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
    launches: tuple[ObservedLaunch, ...] = ()
    """Of perf tests, where they were examined."""
    workers: int = 1
    """In how many workers at once the tests pass; more than one where that was tried."""
    took_s: float = 0.0
    """What the tests took in those."""

    def check(self, kernel: str) -> None:
        """Raise `UsageError` where no test launched a kernel of the file: none can judge it."""
        if not self.launching:
            none = "no correctness test launches"
            if count := len(self.skipped):
                skip = "test skips itself" if count == 1 else "tests skip themselves"
                none = f"{count} correctness {skip} here, and no other launches"
            remedy = f"name those that do with --tests, {or_captured_in_run(kernel)}"
            raise UsageError(f"{none} a kernel of {kernel}: {remedy}")


class _LacksMemory(Exception):
    """The correctness tests of a candidate failed for want of memory."""

    def __init__(self, failure: Failure, records: bool) -> None:
        super().__init__(failure.reason)
        self.failure = failure
        self.records = records
        """Whether there were calls of the origin to compare its own with."""


class _BesideForerunners(Exception):
    """The correctness tests failed beside forerunners, which may be why."""


@dataclass
class Verifier:
    """Runs the correctness tests, and has what is timed examined."""

    server: ForkServer
    examiner: Examiner
    new_log: Callable[[str], Path]
    launching: frozenset[str] = frozenset()
    """Tests that must launch a kernel of the file: a result that none computed is not its own."""
    most: WorkerCount = field(default_factory=lambda: WorkerCount.of(None))
    """In how many workers the tests may run at once."""
    workers: int = 1
    """In how many a candidate's do."""
    forerunners: int = 0
    """How many others may run them too, for what they compile, where one worker does."""

    def verify(
        self,
        plan: TestPlan,
        checkout: Checkout,
        deadline: float,
        *,
        may_skip: bool = False,
        origin: Checkout | None = None,
        allowance: Allowance = AS_PRECISE,
        tell: Telling | None = None,
        as_timed: bool = False,
    ) -> Verification | Failure:
        """Every correctness test must pass, by kernels of the file; then what is timed is examined.

        Args:
            plan: its correctness tests.
            checkout: what is judged.
            deadline: for all of it.
            may_skip: tests may skip themselves, and launches are repeated: for the baseline.
            origin: with it the results of what is timed are compared, see `Examiner`.
            allowance: how much less precise those may be.
            tell: called as each test of the baseline begins, see `OriginsTests`.
            as_timed: what tunes itself takes as long for a choice as where it is timed.
        """
        verify = partial(
            self._turn_by_turn,
            plan,
            checkout,
            deadline,
            may_skip,
            origin,
            allowance,
            tell,
            as_timed,
        )
        try:
            return verify()
        except _LacksMemory as first:  # others hold some that the tests had at the baseline
            self.examiner.end_origin()
            self._await_retired(deadline)
            try:
                found = verify(alone_with_calls=first.records)
            except _LacksMemory as second:
                return second.failure
            cut_off = isinstance(found, Failure) and time.monotonic() >= deadline
            return first.failure if cut_off else found

    def _turn_by_turn(
        self, plan: TestPlan, checkout: Checkout, deadline: float, *how: Any, **alone: Any
    ) -> Verification | Failure:
        """As `_verify`, once more where both want the memory at once, and again where another
        timing does: the examiner asks them in another order then. What fails beside forerunners has
        to fail without any."""
        while True:
            try:
                return self._verify(plan, checkout, deadline, *how, **alone)
            except BesideAnother:
                self._await_retired(deadline)
            except _BesideForerunners:
                self._await_retired(deadline)
                alone["may_forerun"] = False

    def _await_retired(self, deadline: float) -> None:
        left_s = max(0.0, deadline - time.monotonic())
        self.server.await_retired(min(ROOM_TIMEOUT_S, left_s))

    def _verify(
        self,
        plan: TestPlan,
        checkout: Checkout,
        deadline: float,
        may_skip: bool,
        origin: Checkout | None,
        allowance: Allowance,
        tell: Telling | None,
        as_timed: bool,
        *,
        alone_with_calls: bool | None = None,
        may_forerun: bool = True,
    ) -> Verification | Failure:
        """See `verify`.

        Where it is given whether the origin's tests make calls to be compared with, the candidate's
        worker is alone while it runs the tests.

        Raises:
            _LacksMemory: the correctness tests of a candidate failed for want of it.
            _BesideForerunners: they failed, and were not alone.
        """
        log, spent = self.new_log("verify"), SpentTime()
        alone = may_skip or alone_with_calls is not None
        others = 0 if alone or tunes_for_other_tests(checkout) else self.workers - 1
        # What tunes itself chooses by the clock, and what it chose is kept.
        is_plain = not (alone or others or tunes_itself(checkout)) and may_forerun
        ahead = min(self.forerunners, len(plan.correctness) - 1) if is_plain else 0
        try:
            with (
                WorkerSession(
                    self.server,
                    checkout,
                    log,
                    arguments=plan.arguments,
                    tests=plan.correctness + (self.examiner.plan().perf if origin else ()),
                    detect_launches=True,
                    repeat=may_skip,
                ) as arm,
                sessions(self.server, checkout, plan, others, self.new_log) as beside,
                sessions(self.server, checkout, plan, ahead, self.new_log) as forerunners,
            ):
                with spent.on("origin"):  # it collects while the candidate's worker does
                    records = bool(alone_with_calls)
                    if origin is not None and not alone:
                        records = self.examiner.begin(origin, deadline)
                with spent.on("collect"):
                    if problem := import_failure(arm, deadline):
                        return problem
                with spent.on("tests"):
                    if may_skip:
                        return self._first(plan, arm, deadline, tell)
                    looks = PassLooks(records=records, as_timed=as_timed)
                    try:
                        done = self._run(plan, arm, beside, forerunners, deadline, spent, looks)
                    except WorkerError:
                        if ahead and time.monotonic() < deadline:
                            raise _BesideForerunners from None
                        raise
                outcome = self._outcome(checkout, done, may_skip=False)
                lacks = any(test.exception == OUT_OF_MEMORY for test in done.not_passed())
                if origin is not None and isinstance(outcome, Failure) and lacks:
                    raise _LacksMemory(outcome, records)
                if ahead and isinstance(outcome, Failure) and time.monotonic() < deadline:
                    raise _BesideForerunners
                if origin is None or isinstance(outcome, Failure):
                    return outcome
                examine = self.examiner.examine
                found = examine(origin, arm, done, deadline, allowance, spent)
                return found if isinstance(found, Failure) else replace(outcome, launches=found)
        except WorkerError as problem:
            return worker_failure(problem, correct=False)
        finally:
            log.with_suffix(".json").write_text(json.dumps({"spent_s": spent.rounded()}))

    def _run(
        self,
        plan: TestPlan,
        arm: WorkerSession,
        beside: Sequence[WorkerSession],
        forerunners: Sequence[WorkerSession],
        deadline: float,
        spent: SpentTime,
        looks: PassLooks,
    ) -> Pass:
        """A pass of the correctness tests, with the origin asked beside it.

        The first worker runs all tests whose calls are compared later: it keeps its own alone.
        """
        records = looks["records"]
        kept = self.examiner.kept_tests() if records else ()
        mine, *theirs = shares(plan.correctness, 1 + len(beside), kept)
        arm.order(mine, deadline, **looks)
        for other, share in zip(beside, theirs, strict=True):
            other.order(share, deadline, as_timed=looks.get("as_timed", False))
        for other, share in zip(forerunners, shares(mine[1:], len(forerunners) or 1), strict=False):
            with suppress(WorkerError):
                other.order(share, deadline)
        if records and self.examiner.has_origin and not tunes_itself(arm.checkout):
            with spent.on("origin's layouts beside tests"):
                self.examiner.ask_ahead(arm.has_answer, deadline)
        done = joined(arm, beside, plan, deadline)
        for other in forerunners:
            other.abandon()
        return done

    def _first(
        self, plan: TestPlan, arm: WorkerSession, deadline: float, tell: Telling | None
    ) -> Verification | Failure:
        """The origin's tests, and whether a candidate's can run in several workers."""
        checkout = arm.checkout
        most = WorkerCount(1) if tunes_for_other_tests(checkout) else self.most
        origins = OriginsTests(self.server, checkout, plan, most, self.new_log)
        first = origins.run(arm, deadline, tell)
        outcome = self._outcome(checkout, first.done, may_skip=True)
        if isinstance(outcome, Failure) or first.tried == 1:
            return outcome
        tried = f"{first.tried} workers at once"
        note = f"the correctness tests do not pass in {tried}: they run in one"
        if first.workers > 1:
            whole_s = sum(test.seconds for test in first.done.tests)
            note = (
                f"the correctness tests run in {tried}, which takes {first.took_s:.0f} s; in one "
                f"they would take about {whole_s:.0f} s"
            )
        notes = (*outcome.notes, note)
        return replace(outcome, workers=first.workers, took_s=first.took_s, notes=notes)

    def _outcome(self, checkout: Checkout, done: Pass, *, may_skip: bool) -> Verification | Failure:
        """What a pass of the correctness tests says."""
        skipped = done.skipped(checkout.has_module) if may_skip else ()
        if bad := [test for test in done.not_passed() if test.nodeid not in skipped]:
            return test_failure(bad, correct=False)
        if len(skipped) == len(done.tests):
            return all_skipped(done.tests, CORRECTNESS)
        launching = tuple(test.nodeid for test in done.tests if test.launched)
        if idle := sorted(self.launching.difference(launching, skipped)):
            reason = f"{idle[0]} passes without a launch of a kernel of {checkout.kernel}"
            return Failure(Status.REVERT, correct=False, reason=reason)
        lacking = done.missing_modules() if may_skip else ()
        notes = (*done.notes, *(f"not installed, but needed by tests: {name}" for name in lacking))
        return Verification(len(done.tests) - len(skipped), skipped, launching, notes)
