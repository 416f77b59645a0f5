"""Asks the frozen tests about a checkout: is it right, how fast is it, which of two is faster.

Expected failures are values: whatever a candidate does wrong comes back as a `Failure`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agent.decision import Status
from agent.errors import WorkerError, WorkerTimedOut
from agent.harness.arm import Arm, Checkout
from agent.harness.records import RecordError, read_records
from agent.harness.results import Pass, TestResult
from agent.harness.server import ForkServer
from agent.state import Record, TestPlan
from agent.statistics import Blocks, Comparison, compare

ALPHA = 0.0125
"""One-sided error rate of a comparison's bounds."""
MAX_PAIRS = 5
MIN_PAIRS = 3
QUADS = ((True, False, False, True), (False, True, True, False))
"""ABBA, BAAB: True is the incumbent's block. The pairs take them in turn."""
WARM_PASS_LIMIT_S = 5.0
"""A pass longer than this has warmed up by itself; shorter ones are run once uncounted."""


@dataclass(frozen=True)
class Failure:
    """Why a checkout could not be judged good."""

    status: Status
    correct: bool
    """Its results were found right before it failed."""
    reason: str
    incumbent: bool = False
    """The incumbent failed, not the candidate: the machine or the tests are at fault."""


@dataclass(frozen=True)
class Verification:
    """All frozen correctness tests passed."""

    passed: int


class Judge(Protocol):
    """What the loop asks of a harness. A scripted one stands in for it in the loop's own tests."""

    def verify(self, checkout: Checkout, deadline: float) -> Verification | Failure:
        """Run the correctness tests once."""

    def time(self, checkout: Checkout, deadline: float) -> Timing | Failure:
        """Run the perf tests once, after a warm-up."""

    def compare(
        self, incumbent: Checkout, candidate: Checkout, pass_s: float, deadline: float
    ) -> Comparison | Failure:
        """Run the perf tests of both in turn, in fresh process pairs."""


@dataclass(frozen=True)
class Timing:
    """One pass of the perf tests: a record a config, and the wall time of the pass."""

    records: tuple[Record, ...]
    pass_s: float


class PytestJudge:
    """The real one: pytest in forked workers."""

    def __init__(self, server: ForkServer, plan: TestPlan, *, framework: str, logs: Path) -> None:
        self._server = server
        self._plan = plan
        self._framework = framework
        self._logs = logs
        self._numbers = itertools.count(1)

    def verify(self, checkout: Checkout, deadline: float) -> Verification | Failure:
        """Run the correctness tests once; every one of them must pass."""
        try:
            with self._arm(checkout, "verify", self._plan.correctness, deadline) as arm:
                if problem := _import_failure(arm):
                    return problem
                done = arm.run(self._plan.correctness, deadline)
        except WorkerError as problem:
            return _worker_failure(problem, correct=False)
        if bad := done.not_passed():
            return _test_failure(bad, correct=False)
        return Verification(len(done.tests))

    def time(self, checkout: Checkout, deadline: float) -> Timing | Failure:
        """Run the perf tests twice and take the second pass."""
        try:
            with self._arm(checkout, "time", self._plan.perf, deadline) as arm:
                if problem := _import_failure(arm):
                    return problem
                records = self._block(arm, deadline)
                if isinstance(records, Failure):
                    return records
                begin = time.monotonic()
                records = self._block(arm, deadline)
                if isinstance(records, Failure):
                    return records
        except WorkerError as problem:
            return _worker_failure(problem, correct=True)
        return Timing(records, time.monotonic() - begin)

    def compare(
        self, incumbent: Checkout, candidate: Checkout, pass_s: float, deadline: float
    ) -> Comparison | Failure:
        """Interleave the arms block by block, in fresh process pairs.

        Only one arm has work at a time. As many pairs are taken as the deadline allows, from
        `MIN_PAIRS` to `MAX_PAIRS`.
        """
        pairs: list[dict[str, Blocks]] = []
        for number in range(MAX_PAIRS):
            begin = time.monotonic()
            pair = self._pair(incumbent, candidate, QUADS[number % 2], pass_s, deadline)
            if isinstance(pair, Failure):
                return pair
            pairs.append(pair)
            took_s = time.monotonic() - begin
            if len(pairs) >= MIN_PAIRS and time.monotonic() + 1.5 * took_s > deadline:
                break
        try:
            return compare(pairs, alpha=ALPHA)
        except ValueError as problem:
            return Failure(Status.CRASH, correct=True, reason=f"not measurable: {problem}")

    def _pair(
        self,
        incumbent: Checkout,
        candidate: Checkout,
        order: Sequence[bool],
        pass_s: float,
        deadline: float,
    ) -> dict[str, Blocks] | Failure:
        blocks: dict[bool, list[dict[str, float]]] = {True: [], False: []}
        whose = True
        try:
            with self._arm(incumbent, "incumbent", self._plan.perf, deadline) as first:
                whose = False  # from here on it is the candidate's worker that may fail to start
                with self._arm(candidate, "candidate", self._plan.perf, deadline) as second:
                    arms = {True: first, False: second}
                    warm = order[:2] if pass_s < WARM_PASS_LIMIT_S else ()
                    for count, whose in enumerate((*warm, *order)):
                        records = self._block(arms[whose], deadline)
                        if isinstance(records, Failure):
                            return _blame(records, incumbent=whose)
                        if count >= len(warm):
                            blocks[whose].append({r.config: r.latency_ms for r in records})
        except WorkerError as problem:
            return _blame(_worker_failure(problem, correct=True), incumbent=whose)
        configs = blocks[True][0]
        for incumbents, side in ((True, "incumbent"), (False, "candidate")):
            if any(block.keys() != configs.keys() for block in blocks[incumbents]):
                return Failure(
                    Status.CRASH,
                    correct=True,
                    reason=f"the {side} recorded a changing set of configs",
                )
        return {
            config: Blocks(
                tuple(block[config] for block in blocks[True]),
                tuple(block[config] for block in blocks[False]),
            )
            for config in configs
        }

    def _block(self, arm: Arm, deadline: float) -> tuple[Record, ...] | Failure:
        """One pass of the perf tests."""
        done: Pass = arm.run(self._plan.perf, deadline)
        if bad := done.not_passed():
            return _test_failure(bad, correct=bad[0].exception != "AssertionError")
        try:
            return read_records(done.tests, self._framework)
        except RecordError as problem:
            return Failure(Status.CRASH, correct=True, reason=str(problem))

    def _arm(
        self, checkout: Checkout, purpose: str, tests: tuple[str, ...], deadline: float
    ) -> Arm:
        return Arm(
            self._server,
            checkout,
            self._logs / f"{next(self._numbers):04d}-{purpose}.log",
            arguments=self._plan.files,
            tests=tests,
            deadline=deadline,
        )


def _import_failure(arm: Arm) -> Failure | None:
    """The kernel or its tests could not even be imported."""
    if not arm.collection.errors:
        return None
    nodeid, text = arm.collection.errors[0]
    lines = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    reason = lines[-1] if lines else "cannot be imported"
    return Failure(Status.CRASH, correct=False, reason=f"{nodeid}: {reason}")


def _test_failure(bad: Sequence[TestResult], *, correct: bool) -> Failure:
    """A wrong result is reverted; anything else that stops a test is a crash."""
    first = bad[0]
    wrong = first.exception == "AssertionError"
    more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    return Failure(
        Status.REVERT if wrong else Status.CRASH,
        correct=correct,
        reason=f"{first.nodeid}{more}: {first.headline}",
    )


def _worker_failure(problem: WorkerError, *, correct: bool) -> Failure:
    prefix = "timed out: " if isinstance(problem, WorkerTimedOut) else ""
    return Failure(Status.CRASH, correct=correct, reason=f"{prefix}{problem}")


def _blame(failure: Failure, *, incumbent: bool) -> Failure:
    if not incumbent:
        return failure
    return Failure(
        Status.CRASH,
        correct=failure.correct,
        reason=f"the incumbent failed its own perf test: {failure.reason}",
        incumbent=True,
    )
