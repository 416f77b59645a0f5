"""Whether a candidate computes what the origin computes where the user's tests do not look.

The functions of the kernel's file get the arguments that the tests gave them, once more: with a
size cut, with rows or elements further apart, one element further on in memory. Which of that the
origin can do is asked of the origin. It is taken for able where its result depends neither on what
lies around its arguments nor on what was in the memory of its results, and, where only the layout
is another one, where the result is that of the plain layout. Which layouts are looked at is drawn
anew for each candidate, after it was fixed.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from agent.errors import CallFailed, WorkerTimedOut
from agent.harness.measuring.comparer import NoRoom
from agent.harness.measuring.result_check import NotKept, ResultCheck, check_call, other_inputs
from agent.harness.measuring.spent import SpentTime
from agent.harness.processes.results import ExaminedCall, TestedCall
from agent.harness.processes.worker_session import WorkerSession
from tile_agent_pytest.examining.calls import FILLS, ArgumentLayout

MOST = 3
"""Layouts that a candidate is compared in; of Triton and cuTile, each may compile a kernel anew."""
MOST_ASKED = 8
"""Layouts that the origin is asked of for a candidate, whether it can do them or not."""
MOST_CHEAP, MOST_ASKED_CHEAP = 8, 20
"""The same on a GPU, where three of them take a candidate 0.1 to 0.9 s (seen on an H100), and
elsewhere for as long as all of them took less than `CHEAP_S`. Of three of its ten kinds of layouts,
none had the odd size at which a kernel that was kept left a column unwritten."""
CHEAP_S = 1.0
MOST_S = 30.0
"""Time after which the origin is not asked of a further one that the candidate waits for."""
STEP = 16
"""What sizes are multiples of where nothing else is looked at: the compilers tell it apart."""
PITCHES = (1, 3, STEP)
SPREAD = 2
ORIGIN, CANDIDATE = "origin's layouts", "candidate's layouts"
"""What is told of the time that goes to either."""
REMEDY = "; a run with --tested-shapes-only does not ask for it"


@dataclass(frozen=True)
class Variation:
    """A call of the tests in another layout."""

    call: TestedCall
    """As the origin's worker keeps it."""
    layout: ArgumentLayout
    kind: str
    """Stands for all layouts that the origin can do if it can do this one, more or less."""

    def __str__(self) -> str:
        layout = self.layout
        cut = [f"{new} in place of {old}" for old, new in layout.sizes]
        apart = [f"rows {layout.pitch} elements apart"] if layout.pitch else []
        spread = [f"elements {layout.spread} apart"] if layout.spread > 1 else []
        further = ["its arguments one element further on in memory"] if layout.offset else []
        told = ", ".join([*cut, *apart, *spread, *further])
        return f"{self.call.name} with {told} ({self.call.nodeid})"


def variations(
    calls: Sequence[TestedCall], below: Callable[[int], int] = secrets.randbelow
) -> Iterator[Variation]:
    """What may be looked at, by the sizes of the calls.

    Args:
        calls: those that the tests make.
        below: draws a number below another.
    """
    for call in calls:
        for size in sorted({n for shape in call.shapes.values() for n in shape if n > 1}):
            less = 1 + 2 * below(max(1, size // 4))
            yield Variation(call, ArgumentLayout(((size, size - less),)), f"{size} odd")
            if size > STEP:
                less = STEP * (1 + below((size - 1) // STEP))
                yield Variation(call, ArgumentLayout(((size, size - less),)), f"{size} even")
        if any(len(shape) > 1 for shape in call.shapes.values()):
            pitch = PITCHES[below(len(PITCHES))]
            yield Variation(call, ArgumentLayout(pitch=pitch), "pitch")
            yield Variation(call, ArgumentLayout(spread=SPREAD), "spread")
        yield Variation(call, ArgumentLayout(offset=1), "offset")


def each_kind_first(drawn: Sequence[Variation]) -> list[Variation]:
    """In the same order, but one of each kind before another of any: calls may be much alike."""
    seen: Counter[str] = Counter()
    places = []
    for variation in drawn:
        places.append(seen[variation.kind])
        seen[variation.kind] += 1
    order = sorted(range(len(drawn)), key=places.__getitem__)
    return [drawn[n] for n in order]


def paired(ours: Sequence[TestedCall], theirs: Sequence[TestedCall]) -> dict[int, int]:
    """Place of a call among the origin's -> its place among the candidate's, of those of both.

    Several may look alike, the same shapes of two types for instance: they are in the same order.
    """
    left = list(theirs)
    found = {}
    for our in ours:
        if our in left:
            found[our.index] = left.pop(left.index(our)).index
    return found


@dataclass
class LayoutExaminer:
    """Compares candidates with one origin in other layouts.

    For each candidate `draw`, then `ask_one` while it is busy with its own tests, then `keep_only`
    what it calls, too, and `compare_able` and `ask_one` in turn.
    """

    on_gpu: bool = False
    """Whether a GPU makes the calls, so that more of them can be made."""
    compared: list[Variation] = field(default_factory=list)
    """What the last candidate was compared in."""
    ours: WorkerSession | None = None
    """The origin's worker when layouts were drawn."""
    _drawn: list[Variation] = field(default_factory=list)
    """What the origin has not been asked of, in the order of the draw."""
    _asked: list[Variation] = field(default_factory=list)
    _able: list[tuple[Variation, int]] = field(default_factory=list)
    """What the origin can do and the candidate was not compared in, each with its seed."""
    _unfit: set[tuple[int, str]] = field(default_factory=set)
    """What the origin cannot do."""
    _took_s: float = 0.0
    """What the layouts of this candidate have taken, asking and comparing."""

    @property
    def limits(self) -> tuple[int, int]:
        """In how many layouts a candidate is compared, and of how many the origin is asked."""
        if self.on_gpu or self._took_s < CHEAP_S:
            return MOST_CHEAP, MOST_ASKED_CHEAP
        return MOST, MOST_ASKED

    def draw(self, ours: WorkerSession, calls: Sequence[TestedCall]) -> None:
        """Choose what a candidate, whose text is fixed by now, may be compared in.

        Args:
            ours: the origin's worker, which has recorded the calls of the correctness tests.
            calls: those.
        """
        self.ours, drawn = ours, list(variations(calls))
        secrets.SystemRandom().shuffle(drawn)
        self._drawn = each_kind_first(drawn)
        self.compared, self._asked, self._able = [], [], []
        self._took_s = 0.0

    def ask_one(self, check: ResultCheck, deadline: float) -> bool:
        """Ask the origin of one layout more; False where it is not to be asked of any.

        An origin that hangs in a layout cannot do it, and takes half of the time that is left.

        Raises:
            WorkerError: the origin's worker cannot be used again.
        """
        most, most_asked = self.limits
        if len(self.compared) + len(self._able) >= most or len(self._asked) >= most_asked:
            return False
        fit = (v for v in self._drawn if (v.call.index, v.kind) not in self._unfit)
        variation = next(fit, None)
        if variation is None or self.ours is None:
            return False
        self._drawn.remove(variation)
        self._asked.append(variation)
        self._unfit.add(key := (variation.call.index, variation.kind))
        seed = 2 * secrets.randbelow(2**30)
        half_s = (deadline - time.monotonic()) / 2
        try:
            with self._timed():
                can = _origin_can(self.ours, variation, seed, check, time.monotonic() + half_s)
        except CallFailed as problem:
            if "CUDA" in str(problem):  # nothing can be launched in that process any more
                raise
            return True
        except WorkerTimedOut:
            if half_s < MOST_S:  # too little to say that it hangs
                self._unfit.remove(key)
            raise
        if can:
            self._unfit.remove(key)
            self._able.append((variation, seed))
        return True

    def keep_only(self, calls: Collection[int]) -> None:
        """Forget the calls of the origin that are not among these: the candidate makes no such."""
        self._drawn = [v for v in self._drawn if v.call.index in calls]
        self._asked = [v for v in self._asked if v.call.index in calls]
        self._able = [(v, seed) for v, seed in self._able if v.call.index in calls]

    def compare_able(
        self,
        arm: WorkerSession,
        calls: Mapping[int, int],
        check: ResultCheck,
        deadline: float,
        spent: SpentTime,
    ) -> None:
        """Compare a candidate in what the origin was found able to do.

        Args:
            arm: the candidate's worker, which has recorded the calls of the correctness tests, too.
            calls: place of a call among the origin's -> its place among the candidate's.
            check: compares results.
            deadline: for all of it.
            spent: is told what went to either.

        Raises:
            NotKept: the candidate cannot do what the origin can.
            WorkerError: one of the workers ended.
        """
        if len(self._able) > 1:
            wanted = self._able[: self.limits[0] - len(self.compared)]
            with spent.on(CANDIDATE), self._timed():
                arm.compile_first([(calls[v.call.index], v.layout) for v, _ in wanted], deadline)
        while self._able and self.ours is not None and time.monotonic() < deadline:
            if len(self.compared) >= self.limits[0]:
                break  # those that were asked for while it was busy turned out to take long
            variation, seed = self._able.pop(0)
            their_call = calls[variation.call.index]
            with self._timed():
                _compare(self.ours, arm, variation, their_call, seed, check, deadline, spent)
            self.compared.append(variation)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._took_s += time.monotonic() - began


def _origin_can(
    ours: WorkerSession,
    variation: Variation,
    seed: int,
    check: ResultCheck,
    deadline: float,
) -> bool:
    """Whether the origin's result is one: twice the same, and that of the plain layout.

    Raises:
        CallFailed: it cannot make the call.
    """
    results: list[ExaminedCall] = []

    def is_another() -> bool:
        """Make a call; the first one is what others are compared with."""
        results.append(result := ours.examine(seed, deadline, fill=FILLS[len(results) % 2]))
        if not result.launches:
            return True
        try:
            if len(results) > 1:
                return any(d.fault() for d in check.comparer().compare(result, deadline))
            check.comparer().keep(result, deadline)
        except NoRoom:
            return True
        return False

    if not variation.layout.sizes:
        with ours.laid_out(variation.call.index, ArgumentLayout(), deadline):
            if is_another():
                return False
    with ours.laid_out(variation.call.index, variation.layout, deadline):
        return not is_another() and not is_another()


def _compare(
    ours: WorkerSession,
    arm: WorkerSession,
    variation: Variation,
    their_call: int,
    seed: int,
    check: ResultCheck,
    deadline: float,
    spent: SpentTime,
) -> None:
    """The origin makes the call once more: what it computed when it was asked is gone by now."""
    where = str(variation)
    with ours.laid_out(variation.call.index, variation.layout, deadline):
        again: Callable[..., ExaminedCall] = partial(ours.examine, seed, deadline, fill=FILLS[0])
        with spent.on(ORIGIN):
            expected = again()
        try:
            check.comparer().keep(expected, deadline)
            with spent.on(CANDIDATE), arm.laid_out(their_call, variation.layout, deadline):
                actual = arm.examine(seed, deadline, fill=FILLS[1])
                if different := other_inputs(expected, actual):
                    check.align_inputs(where, different, ours, arm, deadline, judged=False)
                    check.comparer().keep(expected := again(), deadline)
                    actual = arm.examine(seed, deadline, fill=FILLS[1])
                check_call(where, expected, actual)
                check.compare(where, actual, {}, again, deadline)
        except CallFailed as problem:
            raise NotKept(f"{where}: fails where the origin does not: {problem}{REMEDY}") from None
        except NotKept as refused:
            raise NotKept(f"{refused}{REMEDY}") from None
        except NoRoom:
            pass  # beside a candidate, for what fitted without one
    check.comparer().forget(deadline)
