"""What baseline, calibration and an iteration will cost: as an earlier run took, or by what."""

from __future__ import annotations

from agent.frozen_tests import TestPlan
from agent.harness.measuring.budget import MOST_PAIRS, USUAL_PAIRS, MeasuringBudget
from agent.options import Options
from agent.planning.earlier import EarlierRun


def cost_lines(tests: TestPlan | None, options: Options, earlier: EarlierRun | None) -> list[str]:
    """What is known of the cost, a line each."""
    if earlier is None:
        return _by_what(tests, options)
    lines = [
        f"as run {earlier.run_id} took on {earlier.machine}"
        + ("" if earlier.same_text else ", of another text of the kernel"),
        f"baseline {earlier.baseline_s:.0f} s, calibration {earlier.calibration_s:.0f} s",
    ]
    if earlier.iteration_s is not None:
        final = "" if earlier.final_s is None else f", the final comparison {earlier.final_s:.0f} s"
        lines.append(
            f"an iteration {earlier.iteration_s:.0f} s, the median of {earlier.iterations}{final}"
        )
    now = (len(tests.correctness), len(tests.perf)) if tests else earlier.tests
    if now != earlier.tests:
        (correct, perf), (ours, our_perf) = earlier.tests, now
        lines.append(
            f"that run had {correct} correctness and {perf} perf tests, this one would have {ours} "
            f"and {our_perf}"
        )
    return lines


def _by_what(tests: TestPlan | None, options: Options) -> list[str]:
    budget = MeasuringBudget.of(options)
    correct = _count(tests.correctness, "correctness test") if tests else "the correctness tests"
    perf = _count(tests.perf, "perf test") if tests else "the perf tests"
    return [
        "no earlier run on this kernel says how long it takes; it depends on the tests",
        f"baseline: {correct} and {perf} once, no perf test begun after "
        f"{budget.calibration_s:.0f} s",
        f"calibration: pairs of passes over the perf tests that fit into "
        f"{budget.calibration_s:.0f} s",
        f"an iteration: {correct}, then {USUAL_PAIRS} to {MOST_PAIRS} pairs within "
        f"{options.comparison_budget_s:.0f} s; a sweep is ranked before; at most "
        f"{options.iteration_timeout_s:.0f} s in all",
    ]


def _count(tests: tuple[str, ...], noun: str) -> str:
    return f"{len(tests)} {noun}{'' if len(tests) == 1 else 's'}"
