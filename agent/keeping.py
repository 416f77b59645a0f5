"""What a candidate has to stand besides its comparison before it is kept."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace

from agent.events import Measured
from agent.harness.measuring.budget import left_out_subset
from agent.harness.measuring.held_twice import compare_what_fits
from agent.harness.measuring.judge import Judge, wrong_as_timed
from agent.harness.processes.worker_session import Checkout, deadline_in
from agent.journal import without_secrets
from agent.measuring.decision import Gain, Status, Verdict, percent, slower_configs
from agent.measuring.measurement import Failure
from agent.measuring.subset import Subset, of_names
from agent.state import Run, decided


def confirmed(
    judge: Judge, run: Run, measured: Measured, arms: tuple[Checkout, Checkout], deadline: float
) -> Measured | Failure:
    """A comparison with its verdict; what it would keep has to stand more than that.

    Its results have to be right with the configs that it chooses where it is timed. Where
    comparisons measure some configs only, none of the others may lose more than the rules allow.

    Args:
        judge: is asked.
        run: as it stands.
        measured: the comparison of the arms.
        arms: incumbent and candidate.
        deadline: of the iteration. The tests have half of its whole time in any case: what is
            right would be lost to the clock.
    """
    verdict = decided(run, measured.comparison)
    measured = replace(measured, verdict=verdict)
    if verdict.status is not Status.KEEP:
        return measured
    tested_by = max(deadline, deadline_in(run.options.iteration_timeout_s / 2))
    if wrong := wrong_as_timed(judge, arms[1], tested_by):
        return wrong
    others = left_out_subset(run, deadline - time.monotonic())
    if others is None:
        return measured
    assert run.baseline is not None
    # Nobody has had two of them on the GPU before: where they do not fit nothing is known.
    outcome, _ = compare_what_fits(judge, run.baseline.costs, arms, others, deadline)
    judge.compare_on(run.subset)
    if isinstance(outcome, Failure):
        is_open = outcome.incumbent or outcome.unmeasured or outcome.lacks_memory
        return measured if is_open else outcome
    found = without_secrets(replace(measured, elsewhere=outcome))
    if slower := _slower(run, found):
        found = _looked_at_again(judge, run, found, slower, arms, deadline)
    if slower := _slower(run, found):
        reason = f"{next(iter(slower.values()))}; the comparison had left it out"
        return replace(found, verdict=Verdict(Status.REVERT, Gain.NONE, reason))
    count = len(outcome.configs)
    which = f"none of {count} others is" if count > 1 else "another is not"
    told = f"{which} slower by more than {percent(run.options.rules.regression)}"
    return replace(found, verdict=replace(verdict, reason=f"{verdict.reason}; {told}"))


def _slower(run: Run, measured: Measured) -> dict[str, str]:
    assert measured.elsewhere is not None
    return slower_configs(measured.elsewhere, run.options.rules, run.elsewhere_since_origin)


def _looked_at_again(
    judge: Judge,
    run: Run,
    measured: Measured,
    slower: Collection[str],
    arms: tuple[Checkout, Checkout],
    deadline: float,
) -> Measured:
    """With what a second comparison says of the configs that lost, where there is one.

    A short kernel may be at one of two levels in a process, and in five pairs of five its arms at
    different ones by chance.
    """
    assert run.baseline is not None and measured.elsewhere is not None
    with _comparing_on(judge, run, of_names(run.baseline.costs, slower)):
        outcome = judge.compare(*arms, None, deadline)
    if isinstance(outcome, Failure):
        return measured
    again = without_secrets(replace(measured, elsewhere=outcome)).elsewhere
    assert again is not None
    later = {config.config: config for config in again.configs}
    configs = tuple(later.get(config.config, config) for config in measured.elsewhere.configs)
    return replace(measured, elsewhere=replace(measured.elsewhere, configs=configs))


@contextmanager
def _comparing_on(judge: Judge, run: Run, others: Subset | None) -> Iterator[None]:
    judge.compare_on(others)
    try:
        yield
    finally:
        judge.compare_on(run.subset)
