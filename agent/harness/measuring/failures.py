"""What went wrong with a worker or a test, as a `Failure` that the loop can write down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent.errors import NoLaunch, WorkerError, WorkerTimedOut, WrongImport, WrongResult
from agent.harness.processes.results import Pass, TestResult
from agent.harness.processes.worker_session import WorkerSession
from agent.measuring.decision import Status
from agent.measuring.measurement import Failure

OUT_OF_MEMORY = "OutOfMemoryError"
"""What torch raises where the memory of a GPU does not suffice."""

LISTED = 50
"""Tests that did not pass, of which the account of a failure has a line each."""


def import_failure(arm: WorkerSession, deadline: float) -> Failure | None:
    """The kernel or its tests could not even be imported."""
    errors = arm.collection(deadline).errors
    if not errors:
        return None
    nodeid, text = errors[0]
    lines = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    reason = lines[-1] if lines else "cannot be imported"
    return Failure(Status.CRASH, correct=False, reason=f"{nodeid}: {reason}", detail=text)


def test_failure(bad: Sequence[TestResult], *, correct: bool = True) -> Failure:
    """A wrong result is reverted; anything else that stops a test is a crash.

    Args:
        bad: the tests that did not pass, at least one.
        correct: the results had been found right before; a perf test that asserts says otherwise.
    """
    first = bad[0]
    wrong = first.exception == "AssertionError"
    more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    return Failure(
        Status.REVERT if wrong else Status.CRASH,
        correct=correct and not wrong,
        reason=f"{first.nodeid}{more}: {first.headline}",
        detail=_accounts(bad),
    )


def _accounts(bad: Sequence[TestResult]) -> str:
    """A line for each of them where there are several, and the first one's in full."""
    told = [f"{test.nodeid}: {test.headline}" for test in bad[:LISTED]] if len(bad) > 1 else []
    return "\n".join([*told, bad[0].text])


def paired_failure(bad: Sequence[TestResult], *, incumbent: bool) -> Failure:
    """Why a perf test did not pass while the other version waited in its own."""
    failure = test_failure(bad)
    if any(test.exception == OUT_OF_MEMORY for test in bad):
        half = (
            "both versions hold their tensors at once: a perf test may take up to half the memory"
        )
        poor = tuple(test.nodeid for test in bad if test.exception == OUT_OF_MEMORY)
        failure = replace(
            failure,
            reason=f"{failure.reason}; {half}",
            lacks_memory=poor if len(poor) == len(bad) else (),
        )
    return blame(failure, incumbent=incumbent)


def all_skipped(tests: Sequence[TestResult], kind: str) -> Failure:
    """Nothing is wrong with them, and nothing is known."""
    reason = tests[0].headline.removeprefix("Skipped: ")
    return Failure(
        Status.CRASH,
        correct=False,
        reason=f"all {len(tests)} {kind} tests skip themselves here: {reason}",
    )


def worker_failure(problem: WorkerError, *, correct: bool) -> Failure:
    """The worker itself ended, hung or answered nonsense."""
    if isinstance(problem, WrongImport):  # a verdict on nobody: the tests judge other code
        return Failure(Status.CRASH, correct=False, reason=str(problem), incumbent=True)
    if isinstance(problem, NoLaunch | WrongResult):
        return Failure(Status.REVERT, correct=False, reason=str(problem))
    prefix = "timed out: " if isinstance(problem, WorkerTimedOut) else ""
    return Failure(Status.CRASH, correct=correct, reason=f"{prefix}{problem}")


def blame(failure: Failure, *, incumbent: bool) -> Failure:
    """The same failure, laid at the incumbent's door where it belongs there."""
    if not incumbent or failure.incumbent:
        return failure
    return Failure(
        Status.CRASH,
        correct=failure.correct,
        reason=f"the incumbent failed its own perf test: {failure.reason}",
        incumbent=True,
        lacks_memory=failure.lacks_memory,
    )


def crash(reason: str) -> Failure:
    """It could not be judged, though nothing was wrong with its results."""
    return Failure(Status.CRASH, correct=True, reason=reason)


def tampering(ours: Pass, theirs: Pass) -> Failure | None:
    """What judges and was replaced, and processes that were started, by a candidate alone.

    Args:
        ours: a pass of the origin or the incumbent; conftest files may have their reasons.
        theirs: the same tests with the candidate's kernel.
    """
    if replaced := sorted(set(theirs.replaced) - set(ours.replaced)):
        reason = f"puts something of its own in place of {listed(replaced)}"
    elif started := sorted(set(theirs.programs) - set(ours.programs)):
        reason = f"starts processes: {listed(started)}"
    else:
        return None
    return Failure(Status.TAMPERED, correct=False, reason=reason)


def listed(names: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more if names else "none"
