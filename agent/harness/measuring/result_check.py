"""Whether what a call computed, and did besides, is what the origin's does.

What a candidate does and the origin does not is named: other operators of torch, changed inputs,
results in the memory of earlier ones, threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from agent.harness.measuring.comparer import Comparer, NoRoom
from agent.harness.measuring.failures import listed
from agent.harness.processes.results import ExaminedCall
from agent.harness.processes.worker_session import WorkerSession
from agent.measuring.decision import Status
from agent.measuring.differences import LIBRARY_OPERATORS, ResultDifference, ResultFault
from tile_agent_pytest.examining.inputs import FACTOR, SPECIAL_SCALES

OwnDifferences = dict[str, ResultDifference]
"""How the results of the origin differ from themselves, by their names."""

_PLAIN = frozenset({"Tensor", "Parameter", "NoneType"})


@dataclass(frozen=True)
class Allowance:
    """How much less precise a candidate may be."""

    rounding: float = 0.0
    """A relative error, root mean square, that lies in the nature of the edit."""
    anything: bool = False
    """Any loss that the user's tests let pass."""


AS_PRECISE = Allowance()
OTHER_VALUES = (
    f"its inputs are the test's, moved on, some of them times {FACTOR:g}, and now and then a row "
    f"times {' or '.join(f'{scale:g}' for scale in SPECIAL_SCALES)}"
)
"""What may be large, or zero, where a result is not finite: see the worker's `Inputs`."""
REPEATS = 4
"""More calls of an origin that differs from itself: of two one cannot tell by how much."""
JITTERS = (1, 2, 3, 4)
"""Draws of other last bits before a candidate is refused: by one of them a few sums may hardly
move. Of 60,000 comparisons of four row sums, in blocks of 256 and of 128 columns, 12 would have
been refused after one draw, and 1 after four."""


class NotKept(Exception):
    """Carries what is wrong with a candidate out of an examination."""

    def __init__(self, reason: str, status: Status = Status.REVERT) -> None:
        super().__init__(reason)
        self.status = status


class LacksMemory(NotKept):
    """The candidate says of a timing that it lacks memory, where the origin did not."""

    def __init__(self, where: str) -> None:
        super().__init__(f"{where}: takes more memory than the origin")


@dataclass
class ResultCheck:
    """Compares a candidate's calls with the origin's."""

    comparer: Callable[[], Comparer]
    """Gives the process that compares."""
    allowance: Allowance = AS_PRECISE

    def own(
        self, ours: WorkerSession, seed: int, first: ExaminedCall, deadline: float
    ) -> tuple[tuple[str, ...], OwnDifferences]:
        """Which written tensors are outputs alone, and how the origin differs from itself."""
        poison = tuple(sorted(first.written))
        again = ours.examine(seed, deadline, poison=poison)
        found = self.comparer().compare(again, deadline)
        if poison and any(difference.fault() for difference in found):
            poison = ()
            again = ours.examine(seed, deadline)
            found = self.comparer().compare(again, deadline)
        own = {difference.name: difference for difference in found}
        repeats = REPEATS if any(d.unequal for d in found) else 0
        origin = partial(ours.examine, seed, deadline, poison=poison)
        return poison, self.wider(own, origin, (1, *[0] * repeats), deadline)

    def wider(
        self,
        own: OwnDifferences,
        origin: Callable[..., ExaminedCall],
        jitters: Sequence[int],
        deadline: float,
    ) -> OwnDifferences:
        """The same with what calls on slightly other inputs, and on the same ones, differ by.

        Args:
            own: what is known so far.
            origin: makes a call of it.
            jitters: a call each: the draw of other last bits, or 0 for the same inputs.
            deadline: for all of them.
        """
        wider = dict(own)
        for jitter in jitters:
            for difference in self.comparer().compare(origin(jitter=jitter), deadline):
                wider[difference.name] = difference.or_larger(
                    wider.get(difference.name, difference)
                )
        return wider

    def compare(
        self,
        where: str,
        actual: ExaminedCall,
        own: OwnDifferences,
        origin: Callable[..., ExaminedCall],
        deadline: float,
    ) -> None:
        """Raise where the results are not the origin's.

        `own` may be of other inputs. Before a candidate is refused, the origin is asked how far it
        is from itself on these: where large values cancel, that is farther.
        """
        found = self.comparer().compare(actual, deadline)
        if any(d.fault(own.get(d.name), self.allowance.rounding) for d in found):
            with suppress(NoRoom):  # what was found stays found
                own = self.wider(own, origin, (*JITTERS, *[0] * REPEATS), deadline)
        for difference in found:
            fault = difference.fault(own.get(difference.name), self.allowance.rounding)
            if fault is ResultFault.WRONG:
                values = f"; {OTHER_VALUES}" if difference.misplaced else ""
                raise NotKept(f"{where}: not the origin's result: {difference}{values}")
            if fault is ResultFault.IMPRECISE and not self.allowance.anything:
                raise NotKept(
                    f"{where}: less precise than the origin: {difference}; "
                    "--allow-precision-loss keeps it"
                )

    def align_inputs(
        self,
        where: str,
        names: Sequence[str],
        ours: WorkerSession,
        arm: WorkerSession,
        deadline: float,
        *,
        judged: bool = True,
    ) -> None:
        """Have a candidate's call take the origin's inputs, where its own are as good as those.

        What a test times may work on what the kernel computed before: a backward pass on the
        result of the forward pass, which an honest edit rounds in another way.

        Args:
            where: names the call.
            names: of the inputs that differ.
            ours: the origin's worker.
            arm: the candidate's.
            deadline: for all of it.
            judged: whether its own may be wrong. Of what tests hand to a function that is called
                once more, the tests themselves judge what it is made of: what they quantize in
                torch is rounded by where it lies in memory.

        Raises:
            NotKept: they differ by more than results may.
            NoRoom: they cannot be copied beside the test.
        """
        given, theirs = ours.given(names, deadline), arm.given(names, deadline)
        self.comparer().keep(given, deadline)
        found = self.comparer().compare(theirs, deadline)
        if theirs.names != given.names:
            name = names[0].strip()
            raise NotKept(f"{where}: the test makes other inputs than for the origin: {name}")
        for difference in found:
            fault = difference.fault(None, self.allowance.rounding) if judged else None
            if fault is ResultFault.WRONG or (fault and not self.allowance.anything):
                how = str(difference).strip()
                raise NotKept(f"{where}: the test makes other inputs than for the origin: {how}")
        arm.take(given, deadline)

    def is_right(self, call: ExaminedCall, own: OwnDifferences, deadline: float) -> bool:
        found = self.comparer().compare(call, deadline)
        return bool(found) and not any(d.fault(own.get(d.name)) for d in found)


def check_names(where: str, expected: ExaminedCall, actual: ExaminedCall) -> None:
    """Raise where a call gives results of other names, types or shapes than the origin's, or none.

    That it lacks memory is the candidate's word, and the origin's call did not.
    """
    if actual.lacks_memory:
        raise LacksMemory(where)
    if actual.names != expected.names:
        raise NotKept(
            f"{where}: other results than the origin's: {listed(actual.names)} where "
            f"{listed(expected.names)} are expected"
        )


def other_inputs(expected: ExaminedCall, actual: ExaminedCall) -> tuple[str, ...]:
    """The inputs of a call whose bytes are not those that the origin's was given.

    Of one that lacks memory nothing is known: that is told by `check_call`.
    """
    if actual.lacks_memory:
        return ()
    return tuple(
        name
        for name, bytes_of in expected.inputs.items()
        if name not in expected.written and actual.inputs.get(name) != bytes_of
    )


def check_call(where: str, expected: ExaminedCall, actual: ExaminedCall) -> None:
    """Raise where a candidate's call does what the origin's does not."""
    if actual.lacks_memory:
        raise LacksMemory(where)
    if different := other_inputs(expected, actual):
        name = different[0].strip()
        raise NotKept(f"{where}: the test makes other inputs than for the origin: {name}")
    if expected.launches and not actual.launches:
        raise NotKept(f"{where}: launches no kernel of the file")
    if changed := (actual.changed | actual.written) - expected.changed - expected.written:
        raise NotKept(f"{where}: changes its input {min(changed)}, which the origin does not")
    check_names(where, expected, actual)
    odd = {n: k for n, k in actual.kinds.items() if k not in _PLAIN and expected.kinds.get(n) != k}
    if odd:
        name = min(odd)
        raise NotKept(f"{where}: {name} is a {odd[name]}, no plain tensor")
    if aliases := actual.aliases - expected.aliases:
        name, other = min(aliases)
        raise NotKept(f"{where}: {name} lies in the memory of {other}")
    if reused := actual.reused - expected.reused:
        raise NotKept(f"{where}: {min(reused)} lies in the memory of an earlier result")
    if new := (actual.operators.keys() - expected.operators.keys()) & LIBRARY_OPERATORS:
        raise NotKept(f"{where}: torch computes, not the kernel: {', '.join(sorted(new))}")
    if actual.streams > expected.streams:
        raise NotKept(f"{where}: launches on another stream than the one that is timed")
    if actual.launching_threads > expected.launching_threads:
        raise NotKept(f"{where}: launches from other threads than the one that is timed")
    if actual.threads > expected.threads:
        raise NotKept(f"{where}: {actual.threads - expected.threads} more threads run")
