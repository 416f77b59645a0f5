"""What an iteration of a run will take, and how many of them fit into its budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent.measuring.looks import ComparisonPlan
from agent.measuring.pair_cost import PairCost
from agent.options import PLAYBOOK
from agent.state import Phase, Run

EXAMINED_PASSES = 2
"""Passes over the compared perf tests, about, in which a candidate's results are examined."""
OF_AN_ITERATION = (
    Phase.PROPOSE,
    Phase.SCOUT,
    Phase.SCREEN,
    Phase.VERIFY,
    Phase.MEASURE,
    Phase.REPAIR,
    Phase.SETTLE,
)


@dataclass(frozen=True)
class Forecast:
    """An estimate: by what baseline and calibration took, then by the iterations so far."""

    comparison_s: float
    """Of the usual number of pairs."""
    longest_comparison_s: float
    """Where it is close, and takes all of them."""
    keep_s: float
    """What is compared besides before a keep: the configs that comparisons leave out."""
    verification_s: float
    compile_s: float | None
    """Of its candidates; None where it is not known yet."""
    iteration_s: float
    """All that is known."""
    first_s: float
    """What the first one takes beyond that: the origin's results are taken for it."""
    unknown: tuple[str, ...]
    """What is not in it, a phrase each."""
    seen: int
    """Iterations that it is the mean of; 0: none, it is the sum of its parts."""
    left_s: float | None
    """Of the run's time budget; None where it has none."""
    iterations: int
    """How many fit."""

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "comparison_s": round(self.comparison_s, 1),
            "longest_comparison_s": round(self.longest_comparison_s, 1),
            "keep_s": round(self.keep_s, 1),
            "verification_s": round(self.verification_s, 1),
            "compile_s": None if self.compile_s is None else round(self.compile_s, 1),
            "iteration_s": round(self.iteration_s, 1),
            "first_s": round(self.first_s, 1),
            "unknown": list(self.unknown),
            "seen": self.seen,
            "left_s": None if self.left_s is None else round(self.left_s, 1),
            "iterations": self.iterations,
        }

    def __str__(self) -> str:
        return "; ".join([self._of_one(), *self._beyond(), self._fitting()])

    def _of_one(self) -> str:
        if self.seen:
            return f"an iteration takes about {self.iteration_s:.0f} s, the mean of {self.seen}"
        before_keep = f", and before a keep {self.keep_s:.0f} s more" if self.keep_s else ""
        parts = [
            *([f"compile {self.compile_s:.0f} s"] if self.compile_s else []),
            f"verification {self.verification_s:.0f} s",
            f"comparison {self.comparison_s:.0f} s "
            f"({self.longest_comparison_s:.0f} s where it is close{before_keep})",
        ]
        return f"an iteration takes about {self.iteration_s:.0f} s: {', '.join(parts)}"

    def _beyond(self) -> list[str]:
        first = [f"the first one {self.first_s:.0f} s more"] if self.first_s >= 1 else []
        return [*first, *([f"not known yet: {', '.join(self.unknown)}"] if self.unknown else [])]

    def _fitting(self) -> str:
        if self.left_s is None:
            total_s = self.first_s + self.iterations * self.iteration_s
            whole = f"{total_s:.0f} s" if total_s < 120 else f"{total_s / 60:.0f} min"
            return f"all {self.iterations} would take {whole}"
        if self.left_s == 0:
            return "nothing is left of the time budget"
        budget = f"the {self.left_s:.0f} s that are left of the time budget"
        if self.iterations == 0:
            return f"not one fits into {budget}, which the first will overrun"
        return f"{self.iterations} fit into {budget}"


def forecast(run: Run) -> Forecast | None:
    """The estimate for a run as it stands; None before its first calibration, or of an old one."""
    baseline, calibration, cost = run.baseline, run.calibration, run.pair_cost
    if baseline is None or calibration is None or cost is None or not calibration.pair_s:
        return None
    compared = [
        cost.seconds
        for cost in baseline.costs
        if run.subset is None or cost.nodeid in run.subset.tests
    ]
    usual, *_, most = ComparisonPlan().looks
    comparison_s = usual * cost.pair_s(run.subset)
    verification_s = baseline.correctness_s + EXAMINED_PASSES * sum(compared)
    iteration_s = (run.compile_s or 0.0) + verification_s + comparison_s
    seen = sum(row.iteration > 0 for row in run.rows)
    first_s = 0.0
    if seen:
        begun = seen + (run.proposal is not None)
        spent_s = sum(run.spent_by_phase_s.get(phase, 0.0) for phase in OF_AN_ITERATION)
        iteration_s = spent_s / begun
    elif not run.options.tested_shapes_only:
        first_s = baseline.correctness_s
    allowed = max(0, run.options.max_iterations - max(run.iteration, 1) + 1)
    left_s, iterations = None, allowed
    if run.options.time_budget_s is not None:
        left_s = max(0.0, run.options.time_budget_s - run.spent_s)
        iterations = min(allowed, max(0, int((left_s - first_s) // max(iteration_s, 1e-9))))
    return Forecast(
        comparison_s=comparison_s,
        longest_comparison_s=most * cost.pair_s(run.subset),
        keep_s=_keep_s(run, usual, cost),
        verification_s=verification_s,
        compile_s=run.compile_s,
        iteration_s=iteration_s,
        first_s=first_s,
        unknown=() if seen else _unknown(run),
        seen=seen,
        left_s=left_s,
        iterations=iterations,
    )


def _keep_s(run: Run, pairs: int, cost: PairCost) -> float:
    """What comparing the configs takes that comparisons leave out, as far as it may take."""
    subset = run.subset
    if subset is None or run.baseline is None or run.baseline.compared:
        return 0.0
    others = cost.of({*subset.left_out} - {*subset.too_large})
    if not others.costs:
        return 0.0
    return min(run.options.comparison_budget_s, pairs * others.pair_s(None))


def _unknown(run: Run) -> tuple[str, ...]:
    """What an iteration takes besides, before one was seen."""
    has_gpu = run.started is not None and bool(run.started.environment.get("gpus"))
    looking = ["looks before a choice"] if run.options.scout and has_gpu else []
    choosing = looking if run.proposer == PLAYBOOK else [f"writing by the {run.proposer}"]
    compiling = ["compile"] if run.compile_s is None else []
    return (*choosing, *compiling, "ranking the variants of a sweep")
