"""Two arms that are asked in turn, or at once; whose fault it is where one fails meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from agent.errors import WorkerError, WorkerTimedOut
from agent.harness.measuring.failures import worker_failure
from agent.harness.processes.results import Pass, Stop
from agent.harness.processes.worker_session import WorkerSession
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


def to_the_next(
    arms: Mapping[bool, WorkerSession],
    start: Callable[[WorkerSession], None],
    *,
    deadline: float,
    in_turn: bool,
) -> dict[bool, Stop | Pass]:
    """Where both arms wait next, or end.

    Args:
        arms: True is the incumbent's.
        start: has one go on, or begin.
        deadline: for both.
        in_turn: one after the other, as the GPU does not hold what both take for a moment.
    """
    stops: dict[bool, Stop | Pass] = {}
    for turn in ((True,), (False,)) if in_turn else ((True, False),):
        for whose in turn:
            with at_arm(whose):
                start(arms[whose])
        for whose in turn:
            with at_arm(whose):
                stops[whose] = arms[whose].next_stop(deadline)
    return stops
