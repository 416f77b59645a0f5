"""How long a process has the GPU work, kernel by kernel, as torch's own profiler tells it.

It runs from the moment that CUDA is initialised, and is read and begun anew from time to time, so
that a long command does not fill the memory with single events.
"""

from __future__ import annotations

import functools
import sys
import threading
import warnings
from dataclasses import dataclass
from time import monotonic
from typing import Any

BETWEEN_READINGS_S = 5.0


@dataclass
class GpuTime:
    """Of a kernel, a copy or a fill, by the name that the driver knows."""

    count: int = 0
    total_ms: float = 0.0


class GpuTimes:
    """Of one process, up to the last reading."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin at nothing: a fork has seen nothing, and cannot use the GPU."""
        self.by_name: dict[str, GpuTime] = {}
        self.gave_way = False
        """Whether the command profiled itself: what ran meanwhile is not known."""
        self._profiler: Any = None
        self._begun = 0.0

    @property
    def runs(self) -> bool:
        """Whether what the GPU does is being recorded."""
        return self._profiler is not None

    def begin_with_cuda(self, cuda: Any) -> None:
        """Begin when CUDA is initialised: `torch.cuda`, which has just been loaded."""
        later = getattr(cuda, "_lazy_call", None)  # has no public name; seeds are set in this way
        if later is not None:  # else with the first launch
            later(self.begin)

    def give_way(self, profiler: Any) -> None:
        """Leave the GPU to the profilers of the command: `torch.autograd.profiler`, just loaded.

        There is one at a time in a process, and the command's own ones are to start as without us.
        """
        prepare = getattr(profiler.profile, "_prepare_trace", None)
        if prepare is None:
            return

        @functools.wraps(prepare)
        def prepare_trace(self: Any, *args: Any, **kwargs: Any) -> Any:
            if times.runs:
                times.read()
                times.gave_way = True
            return prepare(self, *args, **kwargs)

        times = self
        profiler.profile._prepare_trace = prepare_trace

    def begin(self) -> None:
        """Record from here on, unless somebody does; in the thread that is there to the end."""
        import torch

        if self.runs or threading.get_ident() != threading.main_thread().ident:
            return
        if torch.autograd._profiler_enabled():
            self.gave_way = True
            return
        with warnings.catch_warnings():  # that it holds one recording only, which it is to do
            warnings.simplefilter("ignore")
            profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
            try:
                profiler.start()
            except RuntimeError:  # somebody else's, in another thread: the command is to go on
                self.gave_way = True
                return
        self._profiler, self._begun = profiler, monotonic()

    def read_now_and_then(self) -> bool:
        """Begin, or read and begin anew where that is due; whether there is something new."""
        if not is_initialised() or threading.get_ident() != threading.main_thread().ident:
            return False
        import torch

        if torch.cuda.is_current_stream_capturing():  # then nothing may wait for the GPU
            return False
        due = self.runs and monotonic() - self._begun > BETWEEN_READINGS_S
        if due:
            self.read()
        self.begin()
        return due

    def read(self) -> None:
        """End the recording, and count in what it holds; the GPU is waited for."""
        if not self.runs or threading.get_ident() != threading.main_thread().ident:
            return
        import torch  # not sooner: what never ran may be for want of it

        profiler, self._profiler = self._profiler, None
        torch.cuda.synchronize()
        profiler.stop()
        for event in profiler.key_averages():
            on_gpu = event.device_type == torch.autograd.DeviceType.CUDA
            if on_gpu and not event.is_user_annotation:
                time = self.by_name.setdefault(event.key, GpuTime())
                time.count += event.count
                time.total_ms += event.self_device_time_total / 1e3


def is_initialised() -> bool:
    """Whether this process uses a GPU."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())
