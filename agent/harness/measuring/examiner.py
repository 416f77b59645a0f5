"""Whether a candidate computes, at every timed shape, what the origin computes.

The user's tests look at shapes of their own choice, by tolerances of their own choice, and at
nothing of what is timed. Here both stop in the same timing of the same perf test and make the same
call on the same bytes, which are drawn after the candidate was fixed. The results are compared by a
process that neither shares. Calls that the correctness tests make are compared in other layouts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from functools import partial
from pathlib import Path
from typing import NoReturn

from agent.errors import WorkerError
from agent.frozen_tests import TestPlan
from agent.harness.measuring.comparer import Comparer
from agent.harness.measuring.failures import (
    OUT_OF_MEMORY,
    import_failure,
    tampering,
    test_failure,
    worker_failure,
)
from agent.harness.measuring.other_layouts import MOST_S, ORIGIN, LayoutExaminer, paired
from agent.harness.measuring.result_check import (
    Allowance,
    NotKept,
    ResultCheck,
)
from agent.harness.measuring.spent import SpentTime
from agent.harness.measuring.timing_examiner import BesideAnother, TimingExaminer
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.results import Pass, Stop, TestedCall
from agent.harness.processes.worker_session import Checkout, WorkerSession, can_choose_later
from agent.launches import ObservedLaunch
from agent.measuring.decision import Status
from agent.measuring.measurement import Failure


@dataclass
class Examiner:
    """Compares candidates with the origin, whose worker it keeps from one to the next."""

    server: ForkServer
    plan: Callable[[], TestPlan]
    """The tests now: some are left out after the baseline."""
    new_log: Callable[[str], Path]
    other_layouts: bool = True
    """Look at shapes and strides that the tests do not."""
    on_gpu: InitVar[bool] = False
    in_turn: bool = False
    """Whether the perf tests of both make their inputs one after the other: a test ran out of
    memory beside another one."""
    _origin: tuple[Checkout, WorkerSession] | None = None
    _calls: tuple[TestedCall, ...] = ()
    """What the correctness tests call, by the origin's worker."""
    _had_calls: bool = False
    """Whether there were some once: the origin's tests bear that they are recorded, then."""
    _layouts: LayoutExaminer = field(default_factory=LayoutExaminer)
    _comparer: Comparer | None = None
    _timings: TimingExaminer = field(init=False)
    _filling_ms: dict[tuple[int, str], float] = field(default_factory=dict)
    _stops: frozenset[str] | None = None
    """The perf tests that wait; those that time in ways of their own show nothing."""

    def __post_init__(self, on_gpu: bool) -> None:
        self._layouts.on_gpu = on_gpu
        self._timings = TimingExaminer(self.comparer)

    def close(self) -> None:
        """End its processes."""
        self._drop_origin()
        if self._comparer is not None:
            self._comparer.close()
            self._comparer = None

    def comparer(self) -> Comparer:
        """The process that compares; one for all, and another where that has ended."""
        if self._comparer is None or self._comparer.has_ended:
            self._comparer = Comparer(self.server, self.new_log("compare"))
        return self._comparer

    def least_ms(self, timing: Stop, method: str, deadline: float) -> float:
        """What this device takes to write the results of a timing and nothing else; 0: not known.

        Args:
            timing: one that was examined.
            method: name of the sampler that times it.
            deadline: for the measurement, which is made once.
        """
        count = self._timings.written_bytes.get(timing, 0)
        if count and (count, method) not in self._filling_ms:
            took_ms = self.comparer().filling_ms(count, method, deadline)
            self._filling_ms[count, method] = took_ms
        return self._filling_ms.get((count, method), 0.0)

    def begin(self, origin: Checkout, deadline: float) -> bool:
        """Begin with a candidate, whose text is fixed by now: draw what it may be compared in.

        Returns:
            Whether the origin's tests make calls that the candidate's are to be compared with.
            Those are recorded only then: tests that do not bear it would fail for every candidate.
        """
        if not self.other_layouts:
            return False
        try:
            self._layouts.draw(self._session(origin, deadline), self._calls)
        except (NotKept, WorkerError):  # it is met again where it counts
            self._drop_origin()
        return self._had_calls

    @property
    def has_origin(self) -> bool:
        """Whether the origin's worker is there."""
        return self._origin is not None

    @property
    def compared_layouts(self) -> tuple[str, ...]:
        """Calls of the tests in other layouts, in which the last candidate was compared."""
        return tuple(map(str, self._layouts.compared))

    def end_origin(self) -> None:
        """Have the origin's worker give back what it holds of the GPU; another takes its place."""
        self._drop_origin()

    def kept_tests(self) -> frozenset[str]:
        """The tests that make the calls which a candidate's are to be compared with."""
        return frozenset(call.nodeid for call in self._calls)

    def ask_ahead(self, is_enough: Callable[[], bool], deadline: float) -> None:
        """Ask the origin in which layouts the candidate can be compared, while that is busy.

        The candidate is told nothing of it, and nothing that goes wrong here is its fault.

        Args:
            is_enough: asked after each layout; true once the candidate waits.
            deadline: of the candidate; in the second half of its time nothing is asked.
        """
        check = ResultCheck(self.comparer)
        until = (time.monotonic() + deadline) / 2
        with suppress(WorkerError):
            while time.monotonic() < until and not is_enough():
                if not self._ask_one(check, deadline):
                    break

    def _ask_one(self, check: ResultCheck, deadline: float) -> bool:
        """Whether the origin was asked of another layout; raises where nothing could compare."""
        try:
            return self._layouts.ask_one(check, deadline)
        except WorkerError:
            self._drop_origin()
            if self._comparer is not None and self._comparer.has_ended:
                raise
            return False

    def examine(
        self,
        origin: Checkout,
        arm: WorkerSession,
        tested: Pass,
        deadline: float,
        allowance: Allowance,
        spent: SpentTime,
    ) -> Failure | tuple[ObservedLaunch, ...]:
        """Let both go through the perf tests, stop by stop, then through calls in other layouts.

        Args:
            origin: the code as the user gave it.
            arm: the candidate's worker, which has collected the perf tests, too.
            tested: what the correctness tests did, with the calls that this worker recorded.
            deadline: for all of it.
            allowance: how much less precise the candidate may be.
            spent: is told what the time goes to.

        Returns:
            Why the candidate cannot be kept; what its perf tests launched, as far as that was
            seen, where nothing speaks against it.
        """
        perf = self.plan().perf
        tests = tuple(n for n in perf if self._stops is None or n in self._stops)
        if not tests and not self.other_layouts:
            return ()
        check = ResultCheck(self.comparer, allowance)
        ours: WorkerSession | None = None
        try:
            with spent.on("origin"):
                ours = self._session(origin, deadline)
            found: Failure | tuple[ObservedLaunch, ...] = ()
            if tests:
                with spent.on("timed shapes"):
                    found = self._walk(ours, arm, tests, tested, check, deadline)
            session, ours = ours, None
            if isinstance(found, Failure):
                return found
            self._compare_layouts(session, arm, tested.calls, check, deadline, spent)
            return found
        except NotKept as refused:
            return Failure(refused.status, correct=False, reason=str(refused))
        except WorkerError as problem:
            self._drop_origin()  # it may be the one that ended
            return worker_failure(problem, correct=False)
        finally:
            if ours is not None:  # it waits somewhere in a test
                self._drop_origin()

    def _compare_layouts(
        self,
        ours: WorkerSession,
        arm: WorkerSession,
        calls: Sequence[TestedCall],
        check: ResultCheck,
        deadline: float,
        spent: SpentTime,
    ) -> None:
        """Where the origin could not be asked of enough before, it is asked of more now."""
        if self._layouts.ours is not ours:  # it has taken the place of one that ended
            self._layouts.draw(ours, self._calls)
        both = paired(self._calls, calls)
        self._layouts.keep_only(both)
        until = min(deadline, time.monotonic() + MOST_S)
        asked = True
        while asked:
            self._layouts.compare_able(arm, both, check, deadline, spent)
            with spent.on(ORIGIN):
                asked = time.monotonic() < until and self._ask_one(check, deadline)

    def _walk(
        self,
        ours: WorkerSession,
        arm: WorkerSession,
        tests: Sequence[str],
        tested: Pass,
        check: ResultCheck,
        deadline: float,
    ) -> Failure | tuple[ObservedLaunch, ...]:
        stops: set[str] = set()
        start_ours: Callable[[], None] = partial(ours.begin, tests, deadline)
        start_theirs: Callable[[], None] = partial(arm.begin, tests, deadline, observes=True)
        while True:
            start_theirs()
            if not self.in_turn:
                start_ours()
            theirs = arm.next_stop(deadline)
            self._check_room(theirs)
            if isinstance(theirs, Pass) and (bad := theirs.not_passed()):
                raise NotKept(test_failure(bad).reason, test_failure(bad).status)
            if self.in_turn:
                start_ours()
            self._check_room(own := ours.next_stop(deadline))
            start_ours, start_theirs = ours.go, arm.go
            if isinstance(own, Pass) and isinstance(theirs, Pass):
                self._stops = frozenset(stops)
                return tampering(own, theirs.joined(tested)) or theirs.launches
            if not isinstance(own, Stop) or own != theirs:
                ended = ours.finish(own, deadline), arm.finish(theirs, deadline)
                if isinstance(theirs, Pass) and (
                    tampered := tampering(ended[0], theirs.joined(tested))
                ):
                    return tampered
                self._out_of_step(*ended)
            stops.add(own.nodeid)
            self._timings.examine(ours, arm, own, check, deadline)

    def _out_of_step(self, own: Pass, theirs: Pass) -> NoReturn:
        """They wait at different timings: a test of one of them has ended before its own."""
        for end in (own, theirs):
            self._check_room(end)
        for test in (*own.not_passed(), *theirs.not_passed()):
            if test.exception == OUT_OF_MEMORY:
                raise NotKept(
                    f"{test.nodeid}: the memory of this GPU does not hold what it takes beside the "
                    "other version's: leave it out with --perf-k",
                    Status.CRASH,
                )
        if bad := theirs.not_passed():
            raise NotKept(test_failure(bad).reason, test_failure(bad).status)
        raise NotKept("its perf tests time something else than the origin's do")

    def _check_room(self, stop: Stop | Pass) -> None:
        bad = stop.not_passed() if isinstance(stop, Pass) else ()
        if not self.in_turn and any(test.exception == OUT_OF_MEMORY for test in bad):
            self.in_turn = True
            raise BesideAnother

    def _session(self, origin: Checkout, deadline: float) -> WorkerSession:
        """The origin's worker, which waits for a pass."""
        if self._origin is not None and self._origin[0] == origin:
            return self._origin[1]
        self._drop_origin()
        plan = self.plan()
        session = WorkerSession(
            self.server,
            origin,
            self.new_log("origin"),
            arguments=plan.arguments,
            tests=plan.correctness + plan.perf,
        )
        self._origin = (origin, session)
        if problem := import_failure(session, deadline):
            raise NotKept(f"the origin can no longer be imported: {problem.reason}")
        if self.other_layouts:
            done = session.run(plan.correctness, deadline, records=True)
            disturbed = any(test.outcome == "failed" for test in done.tests)
            if disturbed and self._had_calls:
                self._drop_origin()
                raise NotKept("the origin's tests fail beside it, which they did not", Status.CRASH)
            # What tunes itself in a way of its own would be tuned for each other shape.
            tunes = bool(done.chosen) and not can_choose_later(origin)
            self._calls = () if disturbed or tunes else done.calls
            self._had_calls |= bool(self._calls)
        return session

    def _drop_origin(self) -> None:
        if self._origin is not None:
            self._origin[1].kill()
            self._origin = None
        self._timings.forget_origin()
        self._calls = ()
