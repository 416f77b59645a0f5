"""Whose fault it is, where one of two arms fails while it is asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from agent.errors import WorkerError, WorkerTimedOut
from agent.harness.measuring.failures import worker_failure
from agent.measuring.measurement import Failure, unmeasured


class ArmFailed(Exception):
    """Carries a failure out of a measurement, with the arm it belongs to."""

    def __init__(self, failure: Failure, *, incumbent: bool) -> None:
        super().__init__(failure.reason)
        self.failure = failure
        self.incumbent = incumbent


@contextmanager
def at_arm(incumbent: bool) -> Iterator[None]:
    """While one arm is asked: a worker that fails in the block is that arm's."""
    try:
        yield
    except WorkerTimedOut as problem:
        if not incumbent:
            raise ArmFailed(worker_failure(problem, correct=True), incumbent=False) from problem
        late = unmeasured(f"the incumbent's perf tests outlast the iteration: {problem}")
        raise ArmFailed(late, incumbent=False) from problem
    except WorkerError as problem:
        failure = worker_failure(problem, correct=True)
        raise ArmFailed(failure, incumbent=incumbent) from problem
