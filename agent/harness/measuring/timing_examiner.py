"""Whether a candidate's calls of one timing compute what the origin's do, on fresh bytes."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from agent.harness.measuring.comparer import Comparer, NoRoom
from agent.harness.measuring.pair_workers import ROOM_TIMEOUT_S
from agent.harness.measuring.result_check import (
    LacksMemory,
    NotKept,
    OwnDifferences,
    ResultCheck,
    check_call,
    check_names,
    other_inputs,
)
from agent.harness.processes.results import Stop
from agent.harness.processes.worker_session import WorkerSession

LOOK_S = 0.2
"""Between two looks at whether an ended worker's memory has come back."""


class BesideAnother(Exception):
    """Something ran out of memory that the origin's worker held: both are to be asked anew, in
    another order."""


@dataclass
class TimingExaminer:
    """Makes the calls of a timing in the workers of both, which wait in it, and compares them.

    A timing that a GPU does not hold for both is not compared. That a candidate lacks memory is its
    own word: it is asked once more, before the origin, in the room that the origin had.
    """

    comparer: Callable[[], Comparer]
    written_bytes: dict[Stop, int] = field(default_factory=dict)
    """Timing -> what the origin writes in a call, at the least."""
    _known: dict[str, tuple[tuple[str, ...], OwnDifferences]] = field(default_factory=dict)
    """Timing -> the origin's outputs, and how the origin differs from itself."""
    _fitting: set[str] = field(default_factory=set)
    """Timings that were compared: there is room for that beside a candidate."""
    _candidate_first: set[str] = field(default_factory=set)
    """Timings of which a candidate lacked memory once the origin had been asked."""
    _left_out: set[str] = field(default_factory=set)
    """Timings that the device does not hold for both."""

    def forget_origin(self) -> None:
        """Another worker of the origin's makes the calls from now on."""
        self._known = {}

    def examine(
        self,
        ours: WorkerSession,
        arm: WorkerSession,
        timing: Stop,
        check: ResultCheck,
        deadline: float,
    ) -> None:
        """Compare one timing, unless what it takes to look does not fit beside it.

        Args:
            ours: the origin's worker.
            arm: the candidate's.
            timing: in which both wait.
            check: how results are compared.
            deadline: for all of it.

        Raises:
            BesideAnother: both are to be asked anew, for the GPU's memory.
            NotKept: what speaks against the candidate.
            WorkerError: a process has ended, or took too long.
        """
        comparer = self.comparer()
        where = timing.nodeid + ("" if timing.config == "forward" else f" {timing.config}")
        if where in self._left_out:
            return
        if where in self._candidate_first and arm.examine(None, deadline).lacks_memory:
            raise NotKept(str(LacksMemory(where)))
        if timing.through and not ours.examine(None, deadline).launches:
            return  # it may be a reference, which need not bear other bytes
        try:
            self.written_bytes[timing] = self._compare_calls(ours, arm, where, check, deadline)
        except NoRoom:
            if where in self._fitting:
                raise LacksMemory(where) from None
        except LacksMemory:
            if where in self._fitting:
                raise
            if where not in self._candidate_first:
                self._candidate_first.add(where)
            elif self._is_held_twice(arm, deadline):
                raise
            else:
                self._left_out.add(where)
            raise BesideAnother from None
        else:
            self._fitting.add(where)
        finally:
            if not comparer.has_ended:
                comparer.forget(deadline)

    def _is_held_twice(self, arm: WorkerSession, deadline: float) -> bool:
        """Whether the device holds once more what the origin's worker has of it.

        The candidate's is ended before: it could take as much as it needs for this to be denied.
        """
        arm.kill()
        until = min(deadline, time.monotonic() + ROOM_TIMEOUT_S)
        while not (has_room := self.comparer().has_room(deadline)) and time.monotonic() < until:
            time.sleep(LOOK_S)
        return has_room

    def _compare_calls(
        self,
        ours: WorkerSession,
        arm: WorkerSession,
        where: str,
        check: ResultCheck,
        deadline: float,
    ) -> int:
        """Compare calls on two sets of fresh bytes, the second with special values, on one of them
        once more with nothing in the way of the launch, and once without any launch.

        Returns:
            How many bytes a call of the origin writes, at the least.
        """
        even, odd = 2 * secrets.randbelow(2**30), 2 * secrets.randbelow(2**30) + 1
        expected = ours.examine(even, deadline)
        self.comparer().keep(expected, deadline)
        if where not in self._known:
            self._known[where] = check.own(ours, even, expected, deadline)
        poison, own = self._known[where]
        actual = arm.examine(even, deadline, poison=poison)
        if different := other_inputs(expected, actual):
            check.align_inputs(where, different, ours, arm, deadline)
            expected = ours.examine(even, deadline)
            self.comparer().keep(expected, deadline)
            actual = arm.examine(even, deadline, poison=poison)
        check_call(where, expected, actual)
        again = partial(ours.examine, even, deadline, poison=poison)
        check.compare(where, actual, own, again, deadline)
        unseen = arm.examine(even, deadline, poison=poison, unseen=True)
        check_names(where, expected, unseen)
        check.compare(where, unseen, own, again, deadline)
        expected = ours.examine(odd, deadline, poison=poison, special=True)
        self.comparer().keep(expected, deadline)
        if expected.launches:
            still = arm.examine(odd, deadline, poison=poison, special=True, idle=True)
            if still.lacks_memory:
                raise LacksMemory(where)
            if not still.problem and check.is_right(still, own, deadline):
                origin = ours.examine(odd, deadline, poison=poison, special=True, idle=True)
                if origin.problem or not check.is_right(origin, own, deadline):
                    raise NotKept(f"{where}: the result is right without a launch of the kernel")
        actual = arm.examine(odd, deadline, poison=poison, special=True)
        check_call(where, expected, actual)
        again = partial(ours.examine, odd, deadline, poison=poison, special=True)
        check.compare(where, actual, own, again, deadline)
        return expected.written_bytes
