"""What the loop asks of a judge: is a checkout right, how fast is it, which of two is faster.

Expected failures are values: whatever a candidate does wrong comes back as a `Failure`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from agent.events import Baselined
from agent.harness.measuring.line_ups import LineUps
from agent.harness.measuring.result_check import AS_PRECISE, Allowance
from agent.harness.measuring.timed_pass import PassLimit, TimedPass
from agent.harness.measuring.verifier import Verification
from agent.harness.processes.worker_session import Checkout, Telling, chooses_roughly
from agent.measuring.measurement import Calibration, Failure
from agent.measuring.pair_cost import PairTime
from agent.measuring.screening import Look
from agent.measuring.statistics import Comparison
from agent.measuring.subset import Subset
from agent.state import Run

FORERUN_S = 5.0
"""What the correctness tests of the baseline take, in one worker and with its start, before they
are worth more workers: the eleven of a cuTile kernel take 8 to 14 s, most of it its compiler's."""


class Judge(Protocol):
    """What the loop asks of a harness. A scripted one stands in for it in the loop's own tests."""

    def leave_out(self, nodeids: Collection[str]) -> None:
        """Do without the tests that skipped themselves at the baseline, or were not reached."""

    def compare_on(self, subset: Subset | None) -> None:
        """Compare on these configs only; on all where there is no subset."""

    def weigh(self, weights: Mapping[str, float]) -> None:
        """Have configs count by these weights in what is said of all; by 1 where there is none."""

    def expect_launches(self, nodeids: tuple[str, ...]) -> None:
        """Of candidates too, these correctness tests must launch a kernel of the file."""

    def verify_in(self, workers: int, forerun: bool = False) -> None:
        """Run a candidate's correctness tests in so many workers at once; others may run them, too,
        for what they compile."""

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
        """Run the correctness tests once, and compare what is timed with the origin's.

        With an incumbent a comparison with it is prepared meanwhile. At the baseline `tell` is
        called as a test begins. What tunes itself takes less for a choice, unless it is to be
        `as_timed`.
        """

    def time(
        self,
        checkout: Checkout,
        deadline: float,
        *,
        may_skip: bool = False,
        limit: PassLimit | None = None,
    ) -> TimedPass | Failure:
        """Run the perf tests once, warmed up; some of them, where there is a limit."""

    def calibrate(
        self,
        checkout: Checkout,
        deadline: float,
        after_first: Callable[[PairTime], None] = lambda _: None,
        until: float = math.inf,
    ) -> Calibration | Failure:
        """Compare a checkout with itself; told where the first pair's time went, somebody may end
        it. By `until` it should be over: of the pairs beyond the fewest, those that fit are taken.
        """

    def setting(self) -> str:
        """Driver, clock and power limits now; a change of them makes a calibration stale."""

    def quick_compare(
        self, incumbent: Checkout, variant: Checkout, quads: int, deadline: float
    ) -> Look | Failure:
        """One process pair of so many ABBA orders; enough to rank, too little to judge."""

    def line_ups(
        self, incumbent: Checkout, variants: Mapping[str, Checkout], configs: int | None = None
    ) -> LineUps:
        """The same of several variants at once, on so many configs; who is missing in what a look
        at them gives is to be compared alone."""

    def compare(
        self,
        incumbent: Checkout,
        candidate: Checkout,
        calibration: Calibration | None,
        deadline: float,
        *,
        attempts: int = 1,
    ) -> Comparison | Failure:
        """Compare two checkouts, in fresh process pairs, one of so many attempts at most."""


def wrong_as_timed(judge: Judge, checkout: Checkout, deadline: float) -> Failure | None:
    """What the correctness tests find wrong with the configs that a kernel chooses where it is
    timed, if they have run with others until now."""
    if not judge.setting() or not chooses_roughly(checkout):  # no GPU: the first config is taken
        return None
    outcome = judge.verify(checkout, deadline, as_timed=True)
    return outcome if isinstance(outcome, Failure) else None


def is_worth_forerunners(baseline: Baselined) -> bool:
    """Whether the tests take long enough, and write nothing that others of them may meet."""
    return baseline.correctness_s >= FORERUN_S and not baseline.written


def as_at_baseline(judge: Judge, run: Run) -> None:
    """Have a judge ask the tests and the configs that the baseline of a run settled on."""
    if baseline := run.baseline:
        judge.leave_out(baseline.left_out)
        judge.expect_launches(baseline.launching)
        judge.verify_in(baseline.workers, is_worth_forerunners(baseline))
        judge.compare_on(run.subset)
        judge.weigh(baseline.weights)
