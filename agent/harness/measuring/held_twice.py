"""A comparison on the configs that the GPU holds twice, where nobody knew which those are."""

from __future__ import annotations

from collections.abc import Sequence

from agent.harness.measuring.judge import Judge
from agent.harness.processes.worker_session import Checkout
from agent.measuring.measurement import Failure
from agent.measuring.statistics import Comparison
from agent.measuring.subset import PerfTestCost, Subset, without_tests


def compare_what_fits(
    judge: Judge,
    costs: Sequence[PerfTestCost],
    arms: tuple[Checkout, Checkout],
    subset: Subset | None,
    deadline: float,
) -> tuple[Comparison | Failure, Subset | None]:
    """Compare two checkouts; without the tests that run out of memory beside each other.

    Args:
        judge: is asked, and goes on to compare what was compared here.
        costs: of all perf tests.
        arms: incumbent and candidate.
        subset: the configs; None: all.
        deadline: of all comparisons together.

    Returns:
        The comparison, and the configs that it covers. A failure for want of memory where no test
        that fits is left.
    """
    while True:
        judge.compare_on(subset)
        outcome = judge.compare(*arms, None, deadline)
        poor = outcome.lacks_memory if isinstance(outcome, Failure) else ()
        fewer = without_tests(costs, poor, subset) if poor else None
        if fewer is None:
            return outcome, subset
        subset = fewer
