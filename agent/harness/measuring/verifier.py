"""Whether a checkout is right: by the frozen correctness tests, and by the origin's results.

The candidate's worker runs the tests. Meanwhile the origin's is asked in which other layouts it can
do the tests' calls, and compiles for them; see `other_layouts`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from agent.errors import UsageError, WorkerError
from agent.events import TestPlan
from agent.harness.discovery import CORRECTNESS
from agent.harness.measuring.examiner import Examiner
from agent.harness.measuring.failures import (
    all_skipped,
    import_failure,
    test_failure,
    worker_failure,
)
from agent.harness.measuring.result_check import AS_PRECISE, Allowance
from agent.harness.measuring.spent import SpentTime
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.results import Pass
from agent.harness.processes.worker_session import Checkout, WorkerSession, tunes_itself
from agent.launches import ObservedLaunch
from agent.measuring.decision import Status
from agent.measuring.measurement import Failure


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

    def check(self, kernel: str) -> None:
        """Raise `UsageError` where no test launched a kernel of the file: none can judge it."""
        if not self.launching:
            raise UsageError(
                f"no correctness test launches a kernel of {kernel}: "
                "name those that do with --tests"
            )


@dataclass
class Verifier:
    """Runs the correctness tests, and has what is timed examined."""

    server: ForkServer
    examiner: Examiner
    new_log: Callable[[str], Path]
    launching: frozenset[str] = frozenset()
    """Tests that must launch a kernel of the file: a result that none computed is not its own."""

    def verify(
        self,
        plan: TestPlan,
        checkout: Checkout,
        deadline: float,
        *,
        may_skip: bool = False,
        origin: Checkout | None = None,
        allowance: Allowance = AS_PRECISE,
    ) -> Verification | Failure:
        """Every correctness test must pass, by kernels of the file; then what is timed is examined.

        Args:
            plan: its correctness tests.
            checkout: what is judged.
            deadline: for all of it.
            may_skip: tests may skip themselves, and launches are repeated: for the baseline.
            origin: with it the results of what is timed are compared, see `Examiner`.
            allowance: how much less precise those may be.
        """
        log, spent = self.new_log("verify"), SpentTime()
        try:
            with WorkerSession(
                self.server,
                checkout,
                log,
                arguments=plan.arguments,
                tests=plan.correctness + (self.examiner.plan().perf if origin else ()),
                detect_launches=True,
                repeat=may_skip,
            ) as arm:
                with spent.on("origin"):  # it collects while the candidate's worker does
                    records = origin is not None and self.examiner.begin(origin, deadline)
                with spent.on("collect"):
                    if problem := import_failure(arm, deadline):
                        return problem
                with spent.on("tests"):
                    done = self._run(plan, arm, deadline, spent, records=records)
                outcome = self._outcome(checkout, done, may_skip=may_skip)
                if origin is None or isinstance(outcome, Failure):
                    return outcome
                examine = self.examiner.examine
                found = examine(origin, arm, done.calls, deadline, allowance, spent)
                return found if isinstance(found, Failure) else replace(outcome, launches=found)
        except WorkerError as problem:
            return worker_failure(problem, correct=False)
        finally:
            log.with_suffix(".json").write_text(json.dumps({"spent_s": spent.rounded()}))

    def _run(
        self,
        plan: TestPlan,
        arm: WorkerSession,
        deadline: float,
        spent: SpentTime,
        *,
        records: bool,
    ) -> Pass:
        """A pass of the correctness tests, with the origin asked beside it."""
        arm.order(plan.correctness, deadline, records=records)
        if records and not tunes_itself(arm.checkout):
            with spent.on("origin's layouts beside tests"):
                self.examiner.ask_ahead(arm.has_answer, deadline)
        return arm.fetch(deadline)

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
