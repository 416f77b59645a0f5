"""Calibration within its budget: what a pair costs is known after the first one.

The baseline tells what each perf test costs, roughly. Where all of them would not fit, a first pair
is taken of those that would surely do; by what it took, the configs are chosen that fill the budget
and no more. Only the time that pairs take is looked at here, never what they measured.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from agent.errors import UsageError
from agent.events import Baselined
from agent.harness.measuring.judge import Judge
from agent.harness.processes.worker_session import Checkout
from agent.measuring.looks import ComparisonPlan
from agent.measuring.measurement import Calibration, Failure
from agent.measuring.subset import PerfTestCost, Subset, of_names, pair_s, representative
from agent.options import Options
from agent.state import Run

TRIAL_SHARE = 1 / 3
"""The part of the budget that the first pair may take, by the baseline's word."""
RUN_SHARE = 1 / 3
"""The part of a run's time that calibration may take."""
DIAGNOSIS_SHARE = 1 / 3
"""The part of calibration's time that is left to the diagnosis after the pairs, which compiles the
kernel and profiles the slowest perf test: 46 s for TileGym's rope on an H200."""
ITERATION_SHARE = 0.6
"""The part of an iteration's time that a comparison of the usual length may take."""
ATTEMPTS = 3
"""First pairs that are taken at most; each shows better than the one before what a pair costs."""
USUAL_PAIRS, MOST_PAIRS = ComparisonPlan().looks[0], ComparisonPlan().looks[-1]
"""Of a comparison."""
CALIBRATION_PAIRS = ComparisonPlan().calibration_looks[-1]
"""What a calibration takes where there is noise."""


@dataclass(frozen=True)
class MeasuringBudget:
    """How long calibration and comparisons may take, in seconds."""

    calibration_s: float
    most_pair_s: float
    """What comparisons leave to a pair."""

    @classmethod
    def of(cls, options: Options) -> MeasuringBudget:
        """As the options say; of a run that is to be short, calibration takes a share."""
        calibration_s = options.calibration_budget_s
        if options.time_budget_s is not None:
            calibration_s = min(calibration_s, RUN_SHARE * options.time_budget_s)
        comparison_s = options.comparison_budget_s / MOST_PAIRS
        iteration_s = ITERATION_SHARE * options.iteration_timeout_s / USUAL_PAIRS
        return cls(calibration_s, min(comparison_s, iteration_s))

    def before_diagnosis(self) -> MeasuringBudget:
        """What the pairs have of it where a diagnosis follows them."""
        return replace(self, calibration_s=(1 - DIAGNOSIS_SHARE) * self.calibration_s)

    def pair_s(self, left_s: float) -> float:
        """What a pair may take, with so much of the calibration's time left."""
        return min(left_s / CALIBRATION_PAIRS, self.most_pair_s)


LEAST_BASELINE_S = 60.0
"""What a baseline may take of a run whose whole time is shorter: so that such a run ends with what
it has measured."""


def baseline_s(options: Options, spent_s: float) -> float:
    """How long the baseline may take before it has outrun the time of the run."""
    if options.time_budget_s is None:
        return math.inf
    return max(LEAST_BASELINE_S, options.time_budget_s - spent_s)


SCREEN_PAIR_S = 4.0
"""What a pair of the configs may take that a sweep is looked at on: with four variants and the
incumbent, two and a half times that, and what follows of the better ones again."""


LONGEST_SHARE = 0.7
"""Of a pair of all that are compared, what the configs of a sweep may take with the longest."""


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

    def measure(self, checkout: Checkout, deadline: float) -> Calibration | Failure:
        """Compare a checkout with itself, on as many configs as fit.

        Args:
            checkout: of the incumbent.
            deadline: beyond the budget: for what hangs.
        """
        costs = self.baseline.costs
        if self.baseline.compared:  # the user chose them, whatever they take
            self.subset = of_names(costs, self.baseline.compared)
            self.judge.compare_on(self.subset)
            return self.judge.calibrate(checkout, deadline)
        ends = time.monotonic() + self.budget.calibration_s
        if pair_s(costs, None) > self.budget.pair_s(self.budget.calibration_s):
            self.subset = self._fitting(TRIAL_SHARE * self.budget.calibration_s)
        for attempt in range(ATTEMPTS):
            self.judge.compare_on(self.subset)
            look = partial(self._look, ends, attempt)
            try:
                return self.judge.calibrate(checkout, deadline, look)
            except _OtherConfigs as better:
                self.subset = better.subset
        self.judge.compare_on(self.subset)
        return self.judge.calibrate(checkout, deadline)

    def _fitting(self, most_pair_s: float, scale: float = 1.0) -> Subset | None:
        return representative(self.baseline.costs, most_pair_s, scale, self.baseline.kernels)

    def _look(self, ends: float, attempt: int, took_s: float) -> None:
        """After the first pair: go on, or leave with the configs that fit."""
        costs, left_s = self.baseline.costs, ends - time.monotonic()
        scale = took_s / max(pair_s(costs, self.subset), 1e-9)
        fits = took_s <= self.budget.pair_s(left_s + took_s)
        other = self._fitting(self.budget.pair_s(left_s), scale)
        grows = _size(other, costs) - _size(self.subset, costs)
        if (fits and attempt == 0 and grows > 0) or (not fits and grows < 0):
            raise _OtherConfigs(other)


def chosen_configs(costs: Sequence[PerfTestCost], wanted: Sequence[str]) -> tuple[str, ...]:
    """The configs that the user names for comparisons, by parts of their names or tests' ids.

    Raises:
        UsageError: there is none.
    """
    names = {config: f"{cost.nodeid} {config}" for cost in costs for config in cost.latencies_ms}
    found = tuple(c for c, name in names.items() if any(part in name for part in wanted))
    if wanted and not found:
        there = ", ".join(list(names)[:5])
        missing = " or ".join(map(repr, wanted))
        raise UsageError(f"no config of the perf tests holds {missing} in its name: {there}")
    return found


def final_subset(run: Run) -> Subset | None:
    """What the last comparison measures: all configs, or as many as an iteration's time allows."""
    subset, calibration = run.subset, run.calibration
    if subset is None or run.baseline is None:
        return None
    costs = run.baseline.costs
    scale = _scale(costs, subset, calibration)
    most_pair_s = run.options.iteration_timeout_s / USUAL_PAIRS
    whole = representative(costs, most_pair_s, scale, run.baseline.kernels)
    return subset if _size(whole, costs) < len(subset.configs) else whole


def screened_subset(run: Run) -> Subset | None:
    """What a sweep is looked at on: of the configs that comparisons measure, those that stand for
    the others, where all of them would take long."""
    if run.baseline is None:
        return run.subset
    costs = run.baseline.costs
    names = set(run.subset.configs) if run.subset else {n for c in costs for n in c.latencies_ms}
    compared = [part for cost in costs if (part := cost.of(names)).latencies_ms]
    scale = _scale(costs, run.subset, run.calibration)
    few = representative(compared, SCREEN_PAIR_S, scale, run.baseline.kernels)
    if few is None:
        return run.subset
    latencies_ms = {name: ms for cost in compared for name, ms in cost.latencies_ms.items()}
    longest = max(latencies_ms, key=latencies_ms.__getitem__)  # the one that most is at stake in
    both = of_names(compared, {*few.configs, longest})
    if pair_s(compared, both) > LONGEST_SHARE * pair_s(compared, None):
        return of_names(costs, few.configs)
    return of_names(costs, {*few.configs, longest})


def _scale(
    costs: Sequence[PerfTestCost], subset: Subset | None, calibration: Calibration | None
) -> float:
    """How much longer pairs take than the baseline says, as far as the calibration has seen it."""
    if calibration is None or not calibration.pair_s:
        return 1.0
    return calibration.pair_s / max(pair_s(costs, subset), 1e-9)


def _size(subset: Subset | None, costs: Sequence[PerfTestCost]) -> int:
    return len(subset.configs) if subset else sum(len(cost.latencies_ms) for cost in costs)
