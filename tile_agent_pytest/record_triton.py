"""Records what Triton kernels are launched with, on a GPU or without one.

Triton says it itself, to `knobs.runtime.jit_cache_hook`, whenever a launch needs code that it has
not compiled yet. Where there is no GPU the hook also tells it not to compile, which ends the launch
before anything is asked of a driver.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from tile_agent_pytest.compile_triton import Specialization, compile_kernel, gpu_target
from tile_agent_pytest.launch_functions import Given, evaluated, given_to_triton
from tile_agent_pytest.launches import LaunchRecorder, Message, RecordedLaunch, tensors_of
from tile_agent_pytest.observed_launches import as_recorded


@contextlib.contextmanager
def recording(recorder: LaunchRecorder, *, sm: int | None) -> Iterator[None]:
    """Record while the block lasts.

    Args:
        recorder: takes the launches.
        sm: without a GPU, the one to pretend to have: 90 for Hopper. None: there is one.
    """
    triton: Any = importlib.import_module("triton")
    function_class: Any = importlib.import_module("triton.runtime.jit").JITFunction
    grids: list[Any] = [()]
    given: list[Given] = [Given((), {}, {})]

    def hook(*, fn: Any, compile: Message, **_: Any) -> bool:
        if recorder.covers(fn.jit_function.fn):
            recorder.add(_launch(fn.jit_function, compile, grids[-1], given[-1]))
        return sm is not None

    original = function_class.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        given.append(given_to_triton(self, *args, grid=grid, **kwargs))
        grids.append(evaluated(grid, {**given[-1].arguments, **given[-1].options}))
        try:
            return original(self, *args, grid=grid, warmup=warmup, **kwargs)
        finally:
            grids.pop()
            given.pop()

    driver = triton.runtime.driver
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(function_class, "run", run))
        stack.enter_context(mock.patch.object(triton.knobs.runtime, "jit_cache_hook", hook))
        if sm is not None:
            stack.enter_context(mock.patch.object(triton.testing, "do_bench", _once))
            stack.enter_context(mock.patch.object(triton.testing, "do_bench_cudagraph", _once))
            stack.enter_context(mock.patch.object(driver, "_active", StandInDriver(sm)))
            tuner: Any = importlib.import_module("triton.runtime.autotuner").Autotuner
            if hasattr(tuner, "check_disk_cache"):  # since 3.3
                stack.enter_context(mock.patch.object(tuner, "check_disk_cache", _afresh))
        yield


class StandInDriver:
    """As much of a Triton driver as a launch, or the autotuner, needs before the code is there."""

    def __init__(self, sm: int) -> None:
        self._target = gpu_target(sm)
        self.utils = SimpleNamespace(get_device_properties=_device_properties)

    def get_current_target(self) -> Any:
        """The GPU that is pretended."""
        return self._target

    def get_current_device(self) -> int:
        """Its number."""
        return 0

    def set_current_device(self, _: int) -> None:
        """There is one only."""

    def get_current_stream(self, _: int | None = None) -> int:
        """The default stream."""
        return 0

    def get_active_torch_device(self) -> Any:
        """Where user code allocates."""
        import torch

        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        """`torch.cuda`."""
        import torch

        return torch.cuda

    def get_device_capability(self, _: int = 0) -> tuple[int, int]:
        """Major and minor."""
        major, minor = divmod(self._target.arch, 10)
        return major, minor

    def get_benchmarker(self) -> Any:
        """The autotuner's: each config is launched once, and all are equally fast."""
        return _once


def _once(fn: Any, *_: Any, quantiles: Any = None, **__: Any) -> Any:
    fn()
    return [1.0] * len(quantiles) if quantiles else 1.0


def _afresh(_tuner: Any, _key: Any, _configs: Any, bench_fn: Callable[[], None]) -> bool:
    """In place of a look for a choice on disk: no config is left out for one, and none is written
    down out of timings that are no timings."""
    bench_fn()
    return False


def _device_properties(_: int = 0) -> Message:
    import torch

    properties = torch.cuda.get_device_properties(0)
    return {
        "multiprocessor_count": properties.multi_processor_count,
        "max_shared_mem": 232448,
        "warpSize": 32,
        "max_num_regs": 65536,
    }


def _launch(
    function: Any, compiled: Message, grid: tuple[int, ...], given: Given
) -> RecordedLaunch:
    specialization = Specialization.recorded(function, compiled)

    def into(target: str, folder: Path) -> Message:
        return compile_kernel(specialization, int(target.removeprefix("sm_")), folder)

    values = (*given.arguments.values(), *given.options.values())
    return RecordedLaunch(
        key=(function.fn, compiled["key"]),
        kernel=function.fn.__qualname__,
        arguments=specialization.describe(),
        options=specialization.options,
        compile=into,
        grid=grid,
        values=tuple(repr(a) for a in values if isinstance(a, bool | int | float)),
        tensors=tensors_of(given.arguments),
        observed=as_recorded(function.fn.__name__, replace(given, grid=grid)),
    )
