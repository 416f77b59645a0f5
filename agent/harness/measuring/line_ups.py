"""The screens of a sweep: how many variants are in one, and how long its workers stay."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from agent.frozen_tests import TestPlan
from agent.harness.measuring.block_timing import BlockTiming
from agent.harness.measuring.interleaved_screen import INCUMBENT, InterleavedScreen
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import Checkout
from agent.measuring.screening import Look

AT_ONCE = 4
"""Variants of a screen: each holds inputs of its own, beside the incumbent's."""
AT_ONCE_WITH_ROOM = 8
"""The same where the GPU holds the inputs of all with ease."""
ROOMY = 0.5
"""Of the GPU's memory, what they may take then."""


@dataclass
class LineUps:
    """The screens of a sweep, one alive at a time. Use it in a `with`."""

    server: ForkServer
    plan: TestPlan
    checkouts: Mapping[str, Checkout]
    """Name -> a variant's, and that of the `INCUMBENT`."""
    new_log: Callable[[], Path]
    """For the output of a worker."""
    timing: Callable[[int], BlockTiming]
    """How long the blocks of a look of so many ABBA orders are."""
    names: Mapping[str, str]
    """Node id -> what its configs are called."""
    only: frozenset[str] | None = None
    """The configs that are measured; all where it is None."""
    configs: int | None = None
    """How many that are, where it is known."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Config -> how much it counts, 1 where there is none."""
    held_share: float | None = None
    """Of the GPU's memory, what two waiting workers hold; None where nobody knows."""
    _alive: InterleavedScreen | None = field(init=False, default=None)

    def look(
        self, names: Sequence[str], quads: int, deadline: float, *, fresh: bool = False
    ) -> Mapping[str, Look]:
        """Time some of the variants, in the workers that are there where those are all alive.

        Half of the time that is left may go into one screen: in it a variant that hangs holds up
        the others.

        Args:
            names: of the variants.
            quads: how many ABBA orders the look has.
            deadline: for all of it.
            fresh: in new workers in any case.

        Returns:
            What was seen; who is missing is to be compared alone.
        """
        timing = self.timing(quads)
        if not fresh and self._alive is not None and self._alive.holds(names):
            return self._alive.look(names, timing, _half_way(deadline))
        roomy = self._is_roomy()
        seen: dict[str, Look] = {}
        for group in groups(names, AT_ONCE_WITH_ROOM if roomy else AT_ONCE):
            self.close()
            checkouts = {name: self.checkouts[name] for name in (INCUMBENT, *group)}
            self._alive = InterleavedScreen(
                self.server,
                self.plan,
                checkouts,
                {name: self.new_log() for name in checkouts},
                names=self.names,
                only=self.only,
                configs=self.configs,
                weights=self.weights,
                roomy=roomy,
            )
            seen |= self._alive.look(group, timing, _half_way(deadline))
        return seen

    def close(self) -> None:
        """End the workers, which hold memory of the GPU."""
        if self._alive is not None:
            self._alive.close()
        self._alive = None

    def _is_roomy(self) -> bool:
        if self.held_share is None:
            return False
        return self.held_share / 2 * (AT_ONCE_WITH_ROOM + 1) <= ROOMY

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _half_way(deadline: float) -> float:
    return (time.monotonic() + deadline) / 2


def groups(names: Sequence[str], at_once: int) -> Iterator[Sequence[str]]:
    """The variants of each screen, as even as may be."""
    screens = -(-len(names) // at_once)
    for number in range(screens):
        yield names[number * len(names) // screens : (number + 1) * len(names) // screens]
