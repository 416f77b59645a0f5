"""Short kernels timed as a CUDA graph of launches: between two events one would drown in theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from tile_agent_pytest.capturable import can_be_captured
from tile_agent_pytest.examining.tensors import within
from tile_agent_pytest.input_sets import (
    InputSets,
    Turns,
    count_of_sets,
    that_can_lie_elsewhere,
)

GRAPH_LAUNCHES = 50


def open_graph(fn: Callable[[], Any], method: str | None, tensors: Iterable[Any]) -> AsGraph:
    """A graph of a callable, whose launches take turns with sets of inputs where they can.

    The incumbent says how many sets: what a candidate has at hand and returns is its own choice.

    Args:
        fn: what is launched.
        method: that of a graph, or None: how many sets there are is chosen.
        tensors: those that may be copied.

    Raises:
        RuntimeError: it cannot take turns with so many.
    """
    if method == AsGraph.__name__:
        return AsGraph(fn)
    cache_bytes = l2_bytes()
    movable = that_can_lie_elsewhere(tensors, cache_bytes)
    if method is None:
        returned = within(fn(), "result").values()
        count = count_of_sets([*movable, *returned], cache_bytes, GRAPH_LAUNCHES)
        del returned
    else:
        count = int(method.removeprefix(f"{AsColdGraph.__name__} "))
    sets = _sets(fn, movable, count) if count > 1 else None
    if sets is not None:
        return AsColdGraph(fn, sets)
    if method is not None:
        raise RuntimeError(f"its launches cannot take turns with {count} sets of inputs")
    return AsGraph(fn)


def _sets(fn: Callable[[], Any], tensors: Iterable[Any], count: int) -> InputSets | None:
    """So many sets, each of which was called with; None where that cannot be, or not in a graph."""
    import torch

    sets = None
    with suppress(RuntimeError):  # the memory may be short
        sets = InputSets(tensors, count)
    if sets is None:
        torch.cuda.empty_cache()
        return None
    try:
        for index in reversed(range(count)):  # what it keeps by address it has then
            sets.use(index)
            fn()
        sets.use(count - 1)
        return sets if can_be_captured(fn) else None
    finally:
        sets.use(0)


class AsGraph:
    """A CUDA graph of many launches, replayed between two events; a sample is its mean launch.

    The launches follow each other without the host, so the launch time is out of the figure. All
    are on the same inputs, of which the L2 cache holds what it can.
    """

    method = "AsGraph"
    label = f"CUDA graph of {GRAPH_LAUNCHES} launches, same inputs"
    calls = False
    turns: Turns | None = None
    launches = GRAPH_LAUNCHES
    keeps_host = False

    def __init__(self, fn: Callable[[], Any]) -> None:
        import torch

        self._torch = torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                fn()
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._launch(fn)
        torch.cuda.synchronize()

    def _launch(self, fn: Callable[[], Any]) -> None:
        for _ in range(self.launches):
            fn()

    def sample(self, count: int) -> list[float]:
        """One sample a replay."""
        event = self._torch.cuda.Event
        pairs = [(event(enable_timing=True), event(enable_timing=True)) for _ in range(count)]
        for start, end in pairs:
            start.record()
            self._graph.replay()
            end.record()
        self._torch.cuda.synchronize()
        return [start.elapsed_time(end) / self.launches for start, end in pairs]

    def burst(self, count: int) -> None:
        """So many launches' worth of replays, and at least one."""
        for _ in range(max(1, count // self.launches)):
            self._graph.replay()
        self._torch.cuda.synchronize()


class AsColdGraph(AsGraph):
    """The same, where the launches take turns with sets of inputs and results that overflow the L2
    cache. The last launch is on the first set: its result is what the callable returned last.
    """

    label = f"CUDA graph of {GRAPH_LAUNCHES} launches, copies of the inputs in turn"

    def __init__(self, fn: Callable[[], Any], sets: InputSets) -> None:
        self._turns = self.turns = Turns(sets)
        self.method = f"{type(self).__name__} {len(sets)}"
        super().__init__(fn)

    def _launch(self, fn: Callable[[], Any]) -> None:
        try:
            for left in reversed(range(self.launches)):
                self._turns.take(left, fn)
        finally:
            self._turns.end()


def l2_bytes() -> int:
    """Of the L2 cache of the GPU."""
    import torch

    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size)
