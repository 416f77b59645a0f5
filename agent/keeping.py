"""What a candidate has to stand besides its comparison before it is kept."""

from __future__ import annotations

from agent.harness.measuring.budget import left_out_subset
from agent.harness.measuring.judge import Judge, wrong_as_timed
from agent.harness.processes.worker_session import Checkout
from agent.measuring.decision import Gain, Status, Verdict, slower_config
from agent.measuring.measurement import Failure
from agent.measuring.statistics import Comparison
from agent.state import Run, decided


def confirmed(
    judge: Judge,
    run: Run,
    comparison: Comparison,
    arms: tuple[Checkout, Checkout],
    deadline: float,
) -> Verdict | Failure:
    """The verdict on a candidate; what a comparison would keep has to stand more than that.

    Its results have to be right with the configs that it chooses where it is timed. Where
    comparisons measure some configs only, none of the others may lose more than the rules allow.

    Args:
        judge: is asked.
        run: as it stands.
        comparison: of the arms.
        arms: incumbent and candidate.
        deadline: for what hangs.
    """
    verdict = decided(run, comparison)
    if verdict.status is not Status.KEEP:
        return verdict
    if wrong := wrong_as_timed(judge, arms[1], deadline):
        return wrong
    others = left_out_subset(run)
    if others is None:
        return verdict
    judge.compare_on(others)
    outcome = judge.compare(*arms, None, deadline)
    judge.compare_on(run.subset)
    if isinstance(outcome, Failure):
        # Nobody has had two of them on the GPU before: where they do not fit nothing is known.
        is_open = outcome.incumbent or outcome.unmeasured or outcome.lacks_memory
        return verdict if is_open else outcome
    if slower := slower_config(outcome, run.options.rules):
        reason = f"{slower}; the comparison had left it out"
        return Verdict(Status.REVERT, Gain.NONE, reason)
    return verdict
