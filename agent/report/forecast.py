"""What an iteration of a run will take, and how many of them fit into its budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent.measuring.looks import ComparisonPlan
from agent.state import Run

EXAMINED_PASSES = 2
"""Passes over the compared perf tests, about, in which a candidate's results are examined."""


@dataclass(frozen=True)
class Forecast:
    """An estimate, from what baseline and calibration took; sweeps and compilers are not in it."""

    comparison_s: float
    iteration_s: float
    left_s: float | None
    """Of the run's time budget; None where it has none."""
    iterations: int
    """How many fit."""

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "comparison_s": round(self.comparison_s, 1),
            "iteration_s": round(self.iteration_s, 1),
            "left_s": None if self.left_s is None else round(self.left_s, 1),
            "iterations": self.iterations,
        }

    def __str__(self) -> str:
        text = (
            f"an iteration takes about {self.iteration_s:.0f} s, "
            f"{self.comparison_s:.0f} s of that its comparison"
        )
        if self.left_s is None:
            total_s = self.iterations * self.iteration_s
            whole = f"{total_s:.0f} s" if total_s < 120 else f"{total_s / 60:.0f} min"
            return f"{text}; all {self.iterations} would take {whole}"
        if self.left_s == 0:
            return f"{text}; nothing is left of the time budget"
        budget = f"the {self.left_s:.0f} s that are left of the time budget"
        if self.iterations == 0:
            return f"{text}; not one fits into {budget}, which the first will overrun"
        return f"{text}; {self.iterations} fit into {budget}"


def forecast(run: Run) -> Forecast | None:
    """The estimate for a run as it stands; None before its first calibration, or of an old one."""
    baseline, calibration = run.baseline, run.calibration
    if baseline is None or calibration is None or not calibration.pair_s:
        return None
    compared = [
        cost.seconds
        for cost in baseline.costs
        if run.subset is None or cost.nodeid in run.subset.tests
    ]
    comparison_s = ComparisonPlan().looks[0] * calibration.pair_s
    iteration_s = baseline.correctness_s + EXAMINED_PASSES * sum(compared) + comparison_s
    allowed = max(0, run.options.max_iterations - run.iteration + 1)
    if run.options.time_budget_s is None:
        return Forecast(comparison_s, iteration_s, None, allowed)
    left_s = max(0.0, run.options.time_budget_s - run.spent_s)
    return Forecast(comparison_s, iteration_s, left_s, min(allowed, int(left_s // iteration_s)))
