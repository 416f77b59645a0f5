"""The screens of a sweep: how many variants are in one, on which GPU, how long its workers stay.

A screen has an incumbent of its own and stays on one GPU. What is seen on several is comparable by
the ratio to the incumbent, never by latency.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from agent.frozen_tests import TestPlan
from agent.harness.measuring.ahead import ALL
from agent.harness.measuring.block_timing import BlockTiming
from agent.harness.measuring.further_gpus import FurtherGpu, FurtherGpus
from agent.harness.measuring.interleaved_screen import INCUMBENT, InterleavedScreen
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import Checkout
from agent.measuring.screening import Look

AT_ONCE = 4
"""Variants of a screen: each holds inputs of its own, beside the incumbent's."""
AT_ONCE_IF_TIGHT = 2
"""The same where a test ran out of memory beside another version's."""
AT_ONCE_WITH_ROOM = 8
"""The same where the GPU holds the inputs of all with ease."""
LEAST_S = 8.0
"""In less a screen shows nothing: its workers start, import and collect first."""
LEAST_WAIT_S = 1.0
"""How long the workers of a next group are waited for in any case."""
ROOMY = 0.5
"""Of the GPU's memory, what they may take then."""


Enough = Callable[[Mapping[str, Look], Sequence[str]], bool]
"""What was seen, and the variants that no screen had yet -> whether those may be left out."""

_Shares = Mapping[FurtherGpu | None, Sequence[Sequence[str]]]
"""GPU -> the groups that are looked at on it, one after the other; None is the run's own GPU."""


@dataclass
class LineUps:
    """The screens of a sweep, one alive at a time on each GPU. Use it in a `with`."""

    server: ForkServer
    """Of the run's own GPU."""
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
    further: FurtherGpus = field(default_factory=FurtherGpus)
    """Other GPUs, on which groups are looked at at the same time."""
    _alive: dict[FurtherGpu | None, InterleavedScreen] = field(init=False, default_factory=dict)
    _following: dict[FurtherGpu | None, InterleavedScreen] = field(init=False, default_factory=dict)
    """Those of the next groups, whose workers have collected and wait for their turn."""

    def look(
        self,
        names: Sequence[str],
        quads: int,
        deadline: float,
        *,
        fresh: bool = False,
        last: bool = False,
        enough: Enough | None = None,
    ) -> Mapping[str, Look]:
        """Time some of the variants, in the workers that are there where those are all alive.

        Half of the time that is left may go into one screen: in it a variant that hangs holds up
        the others, and whoever is missing is to be compared alone in what is left. Where nothing
        comes after the look, a screen has the time that it needs to show anything.

        Args:
            names: of the variants.
            quads: how many ABBA orders the look has.
            deadline: for all of it.
            fresh: in new workers in any case.
            last: nothing comes after it, so that its last screen may have all that is left.
            enough: asked between the screens of a GPU.

        Returns:
            What was seen; who is missing is to be compared alone.
        """
        timing = self.timing(quads)
        shares = None if fresh else self._held(names)
        if shares is None:
            self.close()
            shares = self._shares(names)
        with ThreadPoolExecutor(1 + len(self.further.gpus)) as threads:
            try:
                others = {
                    gpu: threads.submit(self._look_on, gpu, share, timing, deadline, last, enough)
                    for gpu, share in shares.items()
                    if gpu is not None
                }
                ours = shares.get(None, ())
                seen, _ = self._look_on(None, ours, timing, deadline, last, enough)
                found = {gpu: other.result() for gpu, other in others.items()}
            except BaseException:
                self.further.close()  # their threads end with their workers
                raise
        left: list[str] = []
        for gpu, (seen_there, left_there) in found.items():
            seen |= seen_there
            left += left_there
            if left_there:
                self._alive.pop(gpu).close()
                self.further.drop(gpu, "the incumbent failed on it")
        rest = list(groups(left, self._at_once()))
        again, _ = self._look_on(None, rest, timing, deadline, last, enough)
        return seen | again

    def _look_on(
        self,
        gpu: FurtherGpu | None,
        share: Sequence[Sequence[str]],
        timing: BlockTiming,
        deadline: float,
        last: bool,
        enough: Enough | None,
    ) -> tuple[dict[str, Look], list[str]]:
        """What was seen on one GPU; and who is left, where a further one proves unfit."""
        seen: dict[str, Look] = {}
        for number, group in enumerate(share):
            followed = not last or number + 1 < len(share)
            least = min(deadline, time.monotonic() + LEAST_S) if last else 0.0
            until = max(_half_way(deadline), least) if followed else deadline
            screen = self._screen(gpu, group)
            # Where much is to be gained the first screen mostly shows it, and is the only one.
            is_sure = number > 0 or enough is None
            following = share[number + 1] if is_sure and number + 1 < len(share) else ()
            if following and self._fit_beside(group, following):
                self._collect_beside(gpu, screen, following, until)
            seen |= screen.look(group, timing, until)
            if gpu is not None and not self._alive[gpu].holds(()) and time.monotonic() < until:
                self._forget_following(gpu)
                return seen, [name for group in share[number:] for name in group]
            left = [name for group in share[number + 1 :] for name in group]
            if left and enough is not None and enough(seen, left):
                break
        self._forget_following(gpu)
        return seen, []

    def _fit_beside(self, group: Sequence[str], following: Sequence[str]) -> bool:
        """Whether the workers of both have room, and processors to collect on."""
        variants = len(group) + 1 + len(following)  # and another incumbent
        return self._is_roomy(variants) and variants <= 2 * len(os.sched_getaffinity(0))

    def _collect_beside(
        self,
        gpu: FurtherGpu | None,
        screen: InterleavedScreen,
        following: Sequence[str],
        deadline: float,
    ) -> None:
        """Have the workers of the next group start, and collect beside those of this one.

        They are waited for as long again, for nothing may run beside what is timed. Where one has
        not come to an end by then all of them are started anew in their turn.
        """
        self._following[gpu] = beside = self._new_screen(gpu, following)
        began = time.monotonic()
        screen.collect(deadline)
        took_s = time.monotonic() - began
        beside.collect(min(deadline, began + max(LEAST_WAIT_S, 2 * took_s)))
        if not beside.holds(following):
            self._forget_following(gpu)

    def _forget_following(self, gpu: FurtherGpu | None) -> None:
        if (screen := self._following.pop(gpu, None)) is not None:
            screen.close()

    def _screen(self, gpu: FurtherGpu | None, group: Sequence[str]) -> InterleavedScreen:
        """With these variants: the one that is alive on the GPU, or another in its place."""
        alive = self._alive.get(gpu)
        if alive is not None and alive.holds(group):
            return alive
        if alive is not None:
            alive.close()
        waiting = self._following.pop(gpu, None)
        self._alive[gpu] = waiting or self._new_screen(gpu, group)
        return self._alive[gpu]

    def _new_screen(self, gpu: FurtherGpu | None, group: Sequence[str]) -> InterleavedScreen:
        server = self.server if gpu is None else gpu.server
        assert server is not None  # `ready` gives no other
        checkouts = {name: self.checkouts[name] for name in (INCUMBENT, *group)}
        return InterleavedScreen(
            server,
            self.plan,
            checkouts,
            {name: self.new_log() for name in checkouts},
            names=self.names,
            only=self.only,
            configs=self.configs,
            weights=self.weights,
            roomy=self._is_roomy(len(group)),
        )

    def _held(self, names: Sequence[str]) -> _Shares | None:
        """By the GPUs on which they are alive; None where one is on none of them."""
        shares = {
            gpu: [[name for name in names if screen.holds([name])]]
            for gpu, screen in self._alive.items()
        }
        held = {gpu: share for gpu, share in shares.items() if share[0]}
        if sum(len(group) for (group,) in held.values()) < len(names):
            return None
        return held

    def _shares(self, names: Sequence[str]) -> _Shares:
        """The groups of new screens, spread evenly over the GPUs that can be used now."""
        gpus = [None, *self.further.ready()]
        found = list(groups(names, self._at_once(), len(gpus)))
        return {gpu: found[n :: len(gpus)] for n, gpu in enumerate(gpus[: len(found)])}

    def close(self) -> None:
        """End the workers, which hold memory of the GPUs."""
        for screens in (self._following, self._alive):
            while screens:
                screens.popitem()[1].close()

    def _at_once(self) -> int:
        if self.held_share is not None and self.held_share >= ALL:
            return AT_ONCE_IF_TIGHT
        return AT_ONCE_WITH_ROOM if self._is_roomy(AT_ONCE_WITH_ROOM) else AT_ONCE

    def _is_roomy(self, variants: int) -> bool:
        """Whether the GPU holds the inputs of so many, and the incumbent's, with ease."""
        return self.held_share is not None and self.held_share / 2 * (variants + 1) <= ROOMY

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _half_way(deadline: float) -> float:
    return (time.monotonic() + deadline) / 2


def groups(names: Sequence[str], at_once: int, gpus: int = 1) -> Iterator[Sequence[str]]:
    """The variants of each screen, as even as may be; as many screens on each GPU that has one.

    A screen has two variants at least where there are so many: each has an incumbent beside them.
    """
    used = max(1, min(gpus, len(names) // 2))
    screens = -(-len(names) // (at_once * used)) * used
    for number in range(screens):
        yield names[number * len(names) // screens : (number + 1) * len(names) // screens]
