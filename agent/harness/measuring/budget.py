"""How long the parts of a run may take, and which configs fit into that."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.errors import BaselineOutrun, UsageError
from agent.measuring.looks import ComparisonPlan
from agent.measuring.subset import PerfTestCost, Subset, of_names, without
from agent.options import Options
from agent.state import Run

RUN_SHARE = 1 / 3
"""The part of a run's time that calibration may take."""
DIAGNOSIS_SHARE = 1 / 3
"""The part of calibration's time that is left to the diagnosis after the pairs, which compiles the
kernel and profiles the slowest perf test: 46 s for TileGym's rope on an H200."""
ITERATION_SHARE = 0.6
"""The part of an iteration's time that a comparison of the usual length may take."""
USUAL_PAIRS, MOST_PAIRS = ComparisonPlan().looks[0], ComparisonPlan().looks[-1]
"""Of a comparison."""
FEWEST_PAIRS = ComparisonPlan().least
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


def raise_outrun(kind: str, options: Options, ends: float) -> None:
    """Raise `BaselineOutrun` where tests of this kind failed because the run's time was over."""
    if time.monotonic() >= ends:
        fewer = "--correctness-k" if kind == "correctness" else "--perf-k"
        raise BaselineOutrun(
            f"the {kind} tests of the baseline were not done after --time-budget-s "
            f"{options.time_budget_s:g}: give it more, or have fewer tests with {fewer}"
        )


SCREEN_PAIR_S = 4.0
"""What a pair of the configs may take that a sweep is looked at on: with four variants and the
incumbent, two and a half times that, and what follows of the better ones again."""


BOTH_ENDS_SHARE = 0.7
"""Of a pair of all that are compared, what the configs of a sweep may take with the shortest and
the longest among them."""


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
    """What the last comparison measures: all configs, or those of the iterations and as many more
    as there is time for: that of an iteration, or what is left of the run's."""
    subset, cost = run.subset, run.pair_cost
    if run.baseline is None:
        return None
    seen_so = run.finished.too_large if run.finished else ()
    too_large = tuple(dict.fromkeys([*(subset.too_large if subset else ()), *seen_so]))
    if subset is None or cost is None:
        return without(run.baseline.costs, too_large, None)
    most_s = run.options.iteration_timeout_s
    if run.options.time_budget_s is not None:
        most_s = min(most_s, max(0.0, run.options.time_budget_s - run.spent_s))
    held = cost.of({*subset.configs, *subset.left_out} - {*too_large})
    most_pair_s = most_s / USUAL_PAIRS
    fitting = held.fitting(most_pair_s, run.baseline.kernels, besides=subset.configs)
    return without(run.baseline.costs, too_large, fitting)


def left_out_subset(run: Run, within_s: float) -> Subset | None:
    """The configs that comparisons leave out, as far as a usual one of those fits into its time;
    None where there are none, the user has left them out, or not even a short one would fit.

    Args:
        run: as it stands.
        within_s: how long it may take at the most, before it is ended.
    """
    subset, cost, baseline = run.subset, run.pair_cost, run.baseline
    if subset is None or cost is None or baseline is None or baseline.compared:
        return None
    options = run.options
    if options.time_budget_s is not None:
        within_s = min(within_s, options.time_budget_s - run.spent_s)
    usual_s = min(ITERATION_SHARE * within_s, options.comparison_budget_s)
    others = cost.of({*subset.left_out} - {*subset.too_large})
    chosen = others.fitting(usual_s / USUAL_PAIRS, baseline.kernels)
    if not others.costs or others.pairs(usual_s, chosen) < FEWEST_PAIRS:
        return None
    names = {config for each in others.costs for config in each.latencies_ms}
    return of_names(baseline.costs, chosen.configs if chosen else names)


SCREEN_START_S = 4.0
"""What the workers of a screen take to start, import and collect: nobody has begun ahead of it."""


def screen_pair_s(arms: int, within_s: float, tuning_s: float = 0.0) -> float:
    """What a pair may take of the configs that a screen measures in a time.

    Args:
        arms: of the screen, with the incumbent's: they take what so many halves of a pair take.
        within_s: the time, from the start of its workers.
        tuning_s: what each takes besides to tune itself, one after the other.
    """
    left_s = within_s - SCREEN_START_S - arms * tuning_s
    return min(SCREEN_PAIR_S, 2 * max(0.0, left_s) / arms)


def screened_subset(run: Run, most_pair_s: float = SCREEN_PAIR_S) -> Subset | None:
    """What a sweep is looked at on: of the configs that comparisons measure, those that stand for
    the others, where all of them would take long.

    Args:
        run: as it stands.
        most_pair_s: what a pair of them may take.
    """
    cost = run.pair_cost
    if cost is None or run.baseline is None:
        return run.subset
    costs = run.baseline.costs
    compared = cost.of(run.subset.configs) if run.subset else cost
    few = compared.fitting(most_pair_s, run.baseline.kernels, longest_alone=True)
    if few is None:
        return run.subset
    latencies_ms = {name: ms for c in compared.costs for name, ms in c.latencies_ms.items()}
    ends = {choose(latencies_ms, key=latencies_ms.__getitem__) for choose in (min, max)}
    both = of_names(compared.costs, {*few.configs, *ends})
    is_short = most_pair_s < SCREEN_PAIR_S
    if is_short or compared.pair_s(both) > BOTH_ENDS_SHARE * compared.pair_s(None):
        return of_names(costs, few.configs)
    return of_names(costs, {*few.configs, *ends})
