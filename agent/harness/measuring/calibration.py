"""Calibration within its budget, on configs that stand for the others where not all fit.

The baseline tells what a pair costs, roughly. Where a pair of all configs would not fit, a first
one is taken of those that surely do. Where its time went tells which configs fit: on those the
calibration is made, from the beginning where they are others, but that once. Later pairs are taken
as far as the budget allows. Only the time that pairs take is looked at here, never what they
measured.

Perf tests that ran out of memory beside each other are left out for good: a pair holds the tensors
of a config twice.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial

from agent.events import Baselined
from agent.harness.measuring.budget import MeasuringBudget
from agent.harness.measuring.judge import Judge
from agent.harness.processes.worker_session import Checkout
from agent.measuring.looks import ComparisonPlan
from agent.measuring.measurement import Calibration, Failure
from agent.measuring.pair_cost import PairCost, PairTime
from agent.measuring.subset import PerfTestCost, Subset, of_names, without

TRIAL_SHARE = 1 / 3
"""The part of the budget that the first pair may take, by the baseline's word."""
FIRST_LOOK = ComparisonPlan().calibration_looks[0]
"""Pairs that the budget has to hold: fewer than that know the noise less well."""


class _OtherConfigs(Exception):
    """Carries out of a calibration which configs it is to be made on instead."""

    def __init__(self, subset: Subset | None) -> None:
        super().__init__()
        self.subset = subset


@dataclass
class BudgetedCalibration:
    """Chooses the configs that comparisons measure, and calibrates on those."""

    judge: Judge
    baseline: Baselined
    budget: MeasuringBudget
    subset: Subset | None = field(init=False, default=None)
    """What it was made on in the end; None: all."""
    _costs: tuple[PerfTestCost, ...] = field(init=False)
    """Of the tests that the GPU holds twice, as far as that is known."""

    def __post_init__(self) -> None:
        """Begin with all tests."""
        self._costs = tuple(self.baseline.costs)

    @property
    def holds_all(self) -> bool:
        """Whether the budget is expected to hold all configs; where the user chose some, not."""
        cost = PairCost.expected(self._costs, self.baseline.start_s)
        fits = cost.pair_s(None) <= self.budget.pair_s(self.budget.calibration_s)
        return fits and not self.baseline.compared

    def measure(self, checkout: Checkout, deadline: float) -> Calibration | Failure:
        """Compare a checkout with itself, on as many configs as fit.

        Args:
            checkout: of the incumbent.
            deadline: beyond the budget: for what hangs.
        """
        until = time.monotonic() + self.budget.calibration_s
        while True:
            outcome = self._measure(checkout, deadline, until)
            poor = outcome.lacks_memory if isinstance(outcome, Failure) else ()
            known = {cost.nodeid for cost in self._costs if cost.latencies_ms}
            left = tuple(cost for cost in self._costs if cost.nodeid not in poor)
            there = {config for cost in left for config in cost.latencies_ms}
            can_leave_out = bool(poor) and known.issuperset(poor)  # by their configs
            if not can_leave_out or there.isdisjoint(self.baseline.compared or there):
                return outcome
            self._costs = left

    def _measure(self, checkout: Checkout, deadline: float, until: float) -> Calibration | Failure:
        if self.baseline.compared:  # the user chose them, whatever they take
            self._take(of_names(self._costs, self.baseline.compared))
            return self.judge.calibrate(checkout, deadline, until=until)
        cost = PairCost.expected(self._costs, self.baseline.start_s)
        if not self.holds_all:
            most_pair_s = TRIAL_SHARE * self.budget.calibration_s
            self._take(cost.fitting(most_pair_s, self.baseline.kernels))
        else:
            self._take(None)
        look = partial(self._look, cost, until)
        try:
            return self.judge.calibrate(checkout, deadline, look, until)
        except _OtherConfigs as better:
            self._take(better.subset)
            return self.judge.calibrate(checkout, deadline, until=until)

    def _take(self, subset: Subset | None) -> None:
        self.subset = without(self.baseline.costs, self._too_large(), subset)
        self.judge.compare_on(self.subset)

    def _too_large(self) -> tuple[str, ...]:
        held = {cost.nodeid for cost in self._costs}
        lost = (cost for cost in self.baseline.costs if cost.nodeid not in held)
        return tuple(config for cost in lost for config in cost.latencies_ms)

    def _look(self, cost: PairCost, until: float, first: PairTime) -> None:
        """After the first pair: go on, or leave with the configs that fit.

        It was too long where as many pairs as the noise needs at least would outrun the budget, or
        a comparison its own; too short where the budget holds all pairs of more configs.
        """
        left_s = until - time.monotonic()
        too_long = (
            first.seconds > self.budget.most_pair_s or (FIRST_LOOK - 1) * first.seconds > left_s
        )
        other = cost.seen(first).fitting(self.budget.pair_s(left_s), self.baseline.kernels)
        more = self._count(other) - self._count(self.subset)
        if (too_long and more < 0) or (not too_long and more > 0):
            raise _OtherConfigs(other)

    def _count(self, subset: Subset | None) -> int:
        if subset is not None:
            return len(subset.configs)
        return sum(len(cost.latencies_ms) for cost in self._costs)
