"""Whether calls that are timed do what the first ones did. Pure; what is wrong is raised."""

from __future__ import annotations

import secrets
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from agent.errors import NoLaunch, WrongResult
from agent.harness.measuring.failures import listed
from agent.harness.processes.results import ExaminedCall, PreparedTiming, TimedBlock
from agent.measuring.decision import Status
from agent.measuring.differences import ResultDifference, ResultFault
from agent.measuring.measurement import Failure
from agent.measuring.statistics import Comparison, ConfigComparison

FreshMs = Mapping[tuple[str, bool], Sequence[float]]
"""(config, incumbent?) -> times of calls on fresh bytes."""

FEWEST_FRESH = 5
"""Calls on fresh inputs below which nothing is said of them."""
CHECKS = 2
"""Timed calls of a config and pair whose results are compared, at most; one, once as many calls on
fresh bytes have been seen as say whether those take longer."""
REMEMBERED = 1.5
"""How much longer those may take, beside the incumbent's."""
GAINED = 0.5
"""The part of the gain on repeated calls that those on fresh inputs show at the least."""


def checked_orders(quads: int, seen: int) -> set[int]:
    """The orders of blocks of a config behind which results are compared: nobody can know which.

    Args:
        quads: how many orders there are.
        seen: calls of the config on fresh bytes that were timed in earlier pairs.
    """
    checks = 1 if seen >= FEWEST_FRESH else CHECKS
    return set(secrets.SystemRandom().sample(range(quads), min(checks, quads)))


def check_launches(name: str, ours: PreparedTiming, theirs: PreparedTiming, kernel: str) -> None:
    """Before anything is timed: the candidate launches where the incumbent does, each time.

    Raises:
        NoLaunch: it does not.
    """
    if ours.launched and not theirs.launched:
        raise NoLaunch(f"{name} launches no kernel of {kernel}")
    if ours.launches_per_call and not theirs.launches_per_call:
        raise NoLaunch(f"{name} launches a kernel of {kernel} in its first call only")
    if theirs.children > ours.children:
        raise NoLaunch(f"{name}: {theirs.children - ours.children} more processes run beside it")
    if theirs.skipped_launches > 0:
        raise NoLaunch(f"{name}: {theirs.skipped_launches} launches are missing in repeated calls")


def check_block(prepared: PreparedTiming, count: int, taken: TimedBlock) -> None:
    """After a block of so many samples: no launch is missing, nothing else runs.

    Raises:
        NoLaunch: it is not so.
    """
    if taken.children > prepared.children:
        raise NoLaunch(f"{taken.children} processes run beside the timed calls")
    if prepared.calls and taken.launches < count * prepared.launches_per_call:
        raise NoLaunch(
            f"{count} timed calls launch {taken.launches} kernels where a first one launched "
            f"{prepared.launches_per_call}"
        )


def check_fresh(fresh_ms: FreshMs, compared: Sequence[ConfigComparison]) -> str | None:
    """Whether repeated calls are faster because they repeat: what a candidate remembers of a call.

    On fresh inputs a call takes longer anyway: caches are cold, and nothing is queued ahead. That
    is a time of its own, which weighs more where the candidate is much faster. What is remembered
    shows in that fresh calls do not gain, too.

    Args:
        fresh_ms: the times of calls on fresh bytes.
        compared: the times of repeated calls.

    Returns:
        What speaks for it; None where nothing does, or there are too few calls to tell.
    """
    for config in compared:
        ours, theirs = (fresh_ms.get((config.config, whose), ()) for whose in (True, False))
        if min(len(ours), len(theirs)) < FEWEST_FRESH:
            continue
        own = statistics.median(ours) / config.incumbent_ms
        longer = statistics.median(theirs) / config.candidate_ms
        gain_ms = config.incumbent_ms - config.candidate_ms
        fresh_gain_ms = statistics.median(ours) - statistics.median(theirs)
        if longer > REMEMBERED * max(own, 1.0) and fresh_gain_ms < GAINED * gain_ms:
            return (
                f"{config.config} takes {longer:.2f} times as long on fresh inputs as on repeated "
                f"ones, and the incumbent {own:.2f} times: it remembers earlier calls"
            )
    return None


def unless_remembered(
    measure: Callable[[], tuple[Comparison | Failure, FreshMs]],
) -> Comparison | Failure:
    """What is measured; a refusal where repeated calls are faster because they repeat.

    A host that was busy for a moment looks the same, and the candidate would be called a cheat for
    it: what looks so is measured once more, and that alone counts. Who remembers does so again,
    or is as slow as it is.

    Args:
        measure: gives the comparison, and the times of its calls on fresh bytes.
    """
    remembered = None
    for _ in range(2):
        outcome, fresh_ms = measure()
        if isinstance(outcome, Failure):
            return outcome
        remembered = check_fresh(fresh_ms, outcome.configs)
        if remembered is None:
            return outcome
    return Failure(Status.REVERT, correct=False, reason=remembered or "")


def check_results(
    name: str, ours: ExaminedCall, theirs: ExaminedCall, found: Iterable[ResultDifference]
) -> None:
    """What a timed call computed is the incumbent's result.

    How precise it is was compared with the origin's before: here a result counts that was not
    computed, or for other inputs.

    Args:
        name: of the config.
        ours: what the incumbent's call gave; nothing, where nobody could look.
        theirs: what the candidate's gave.
        found: how the two differ.

    Raises:
        WrongResult: it is not.
    """
    if ours.names and theirs.lacks_memory:  # that is the candidate's word
        raise WrongResult(
            f"{name}: nobody could look at what a timed call gave: the memory of this GPU does not "
            "hold that beside both versions: leave it out with --perf-k"
        )
    if ours.names and theirs.names != ours.names:
        raise WrongResult(
            f"{name}: a timed call gave other results: {listed(theirs.names)} where "
            f"{listed(ours.names)} are expected"
        )
    for difference in found:
        if difference.fault() is ResultFault.WRONG:
            raise WrongResult(f"{name}: a timed call gave another result: {difference}")
