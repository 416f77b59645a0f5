"""Which workers of process pairs start before their turn, and how far they go.

As many as there are processors for, and with inputs only where the GPU has room for all of them. An
arm that tunes itself is not called before its turn: what runs beside it would be tuned into it.
Where a test ran out of memory, nobody starts before their turn, and the two arms of a pair make
their inputs one after the other: what a test takes for a moment, as for a reference, may be many
times what it goes on to hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.harness.measuring.gpu import GpuWatch
from agent.harness.measuring.pair_workers import PairWorkers

ROOMY = 0.25
"""Of the GPU's memory, what the inputs of both arms may take where both copy them at once."""
ROOMY_AHEAD = 0.5
"""The same with those of the next pairs."""
ALL = 1.0
"""Of the GPU's memory, what arms are said to take once a test has run out of it."""


@dataclass
class Ahead:
    """The pairs that wait for their turn."""

    workers: PairWorkers
    watch: GpuWatch | None
    most: int
    """Pairs that may start while one prepares."""
    tunes: bool
    """Whether one of the arms tunes itself: nothing may run beside it then."""
    held_share: float | None = None
    """Of the GPU's memory, the most that two waiting arms took; None where none were seen."""

    @property
    def is_roomy(self) -> bool:
        """Whether the GPU holds the inputs of two arms with ease; without one it is said to."""
        if self.is_tight:
            return False
        return self.watch is None or self.watch.used_share() <= ROOMY

    @property
    def is_tight(self) -> bool:
        """Whether a test ran out of memory where others held some of it."""
        return self.held_share is not None and self.held_share >= ALL

    def begin_early(self, pairs: int) -> None:
        """Have the workers of the first pairs collect while something else is run, not timed.

        Nothing is begun where they would have to share its processors, or where two arms were seen
        to need much of the GPU's memory: it may, too.
        """
        if self.most > 1 and (self.held_share or 0.0) <= ROOMY and self.is_roomy:
            self.workers.start(pairs)

    def begin(self, following: int, deadline: float) -> int:
        """Have the workers of a pair collect, and those of some that follow it.

        Args:
            following: how many are to be expected; 0 where there is no time for more.
            deadline: for what is waited for.

        Returns:
            How many wait besides that pair.
        """
        most, room = min(self.most if self.is_roomy else 1, following), self._room()
        most = min(most, room) if room else 0 if self.is_tight else most
        waiting = max(0, self.workers.start(1 + most) - 1)
        if most and room and waiting <= room:  # some may have begun early
            self.workers.await_waiting(deadline, begin=True, call=not self.tunes)
        return waiting

    def settle(self, deadline: float, *, known_to_fit: bool) -> None:
        """Wait until they only wait: blocks are timed next.

        Args:
            deadline: for that.
            known_to_fit: all inputs that a test makes have been seen to.
        """
        begin = known_to_fit and self.workers.waiting <= self._room()
        self.workers.await_waiting(deadline, begin=begin, call=begin and not self.tunes)

    def saw(self, used_share: float) -> None:
        """Note what the GPU's memory held while one pair and those ahead of it had inputs."""
        held_share = used_share / (1 + self.workers.ahead)
        self.held_share = max(self.held_share or 0.0, held_share)

    def _room(self) -> int:
        """How many pairs may make inputs beside another, by what one was seen to hold."""
        if self.watch is None or not self.held_share or not self.workers.beside:
            return 0
        return max(0, int(ROOMY_AHEAD / self.held_share) - 1)
