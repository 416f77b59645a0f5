"""How long calls take: between two CUDA events where a GPU is in use, else by the wall clock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from tile_agent_pytest.examining.tensors import torch

PRETENDED = "tile_agent_pytest.tile_cpu.cuda_as_cpu"
"""What answers for `torch.cuda` under `pytest --tile-cpu`; its events have no times."""
MOST_PENDING = 256
"""Pairs of events that wait for the GPU before it is asked to finish."""


@dataclass(frozen=True)
class StartedClock:
    """When a call began."""

    event: Any
    """None where the wall clock counts."""
    seconds: float


class CallClock:
    """Takes no time of the GPU's: events are read when it has passed them."""

    def __init__(self) -> None:
        self._pending: list[tuple[Any, Any, Callable[[float], None]]] = []

    @property
    def meaning(self) -> str:
        """What its figures are."""
        return "CUDA events" if _on_gpu() else "wall time on the CPU"

    def start(self) -> StartedClock:
        """A call begins."""
        event = _recorded_event() if _on_gpu() else None
        return StartedClock(event, perf_counter())

    def stop(self, started: StartedClock, then: Callable[[float], None]) -> None:
        """It has returned; its time in ms is told now or later."""
        end = _recorded_event() if started.event is not None else None
        if end is None:
            then((perf_counter() - started.seconds) * 1e3)
            return
        self._pending.append((started.event, end, then))
        if len(self._pending) >= MOST_PENDING:
            self.settle()

    def settle(self) -> None:
        """Tell all times that are open; the GPU is waited for."""
        if not self._pending or is_capturing():
            return
        pending, self._pending = self._pending, []
        for begin, end, then in pending:
            end.synchronize()
            then(begin.elapsed_time(end))


def _on_gpu() -> bool:
    pretended = sys.modules.get(PRETENDED)
    if pretended is not None and pretended.pretends():
        return False
    return bool(torch().cuda.is_initialized())


def is_capturing() -> bool:
    """Whether a CUDA graph is captured: then nothing may wait for the GPU."""
    return _on_gpu() and bool(torch().cuda.is_current_stream_capturing())


def _recorded_event() -> Any:
    """None while a graph is captured: an event would become a part of it."""
    if is_capturing():
        return None
    event = torch().cuda.Event(enable_timing=True)
    event.record()
    return event
