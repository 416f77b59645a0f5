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
from typing import Any
from unittest import mock

from tile_agent_pytest.compile_triton import Specialization, compile_kernel
from tile_agent_pytest.compiled_apart import asking
from tile_agent_pytest.launch_functions import (
    Given,
    evaluated,
    given_to_triton,
    kernel_name,
)
from tile_agent_pytest.launches import LaunchRecorder, Message, RecordedLaunch, tensors_of
from tile_agent_pytest.observed_launches import as_recorded
from tile_agent_pytest.stand_in_driver import StandInDriver, launched_once
from tile_agent_pytest.tuning_effort import LOOKED_AT, best_of_first, only


def _known_values() -> Any:
    """Needs torch, as what pretends to be a GPU does."""
    return importlib.import_module("tile_agent_pytest.known_values")


@contextlib.contextmanager
def recording(
    recorder: LaunchRecorder, *, sm: int | None, tuned: Path | None = None
) -> Iterator[None]:
    """Record while the block lasts.

    Args:
        recorder: takes the launches.
        sm: without a GPU, the one to pretend to have: 90 for Hopper. None: there is one.
        tuned: where a run keeps the choices of its first text: a tuner then launches, without a
            GPU, only the configs that a short look would choose from.
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
            if sm is not None:
                _known_values().launched((*args, *kwargs.values()))
            grids.pop()
            given.pop()

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(function_class, "run", run))
        stack.enter_context(mock.patch.object(triton.knobs.runtime, "jit_cache_hook", hook))
        if sm is not None:
            stack.enter_context(mock.patch.object(triton.testing, "do_bench", launched_once))
            stack.enter_context(
                mock.patch.object(triton.testing, "do_bench_cudagraph", launched_once)
            )
            stack.enter_context(asking(StandInDriver(sm)))
            tuner: Any = importlib.import_module("triton.runtime.autotuner").Autotuner
            if hasattr(tuner, "check_disk_cache"):  # since 3.3
                stack.enter_context(
                    mock.patch.object(tuner, "check_disk_cache", _afresh(recorder, tuned))
                )
        yield


def _afresh(recorder: LaunchRecorder, tuned: Path | None) -> Callable[..., bool]:
    """In place of a look for a choice on disk: no config is left out for one, and none is written
    down out of timings that are no timings."""

    def check(tuner: Any, key: Any, configs: list[Any], bench_fn: Callable[[], None]) -> bool:
        if tuned is None:
            bench_fn()
            return False
        among = best_of_first(tuned, tuner, key, configs, LOOKED_AT)
        recorder.untried += len(configs) - len(among)
        with only(tuner, among):
            bench_fn()
        return False

    return check


def _launch(
    function: Any, compiled: Message, grid: tuple[int, ...], given: Given
) -> RecordedLaunch:
    specialization = Specialization.recorded(function, compiled)

    def into(target: str, folder: Path) -> Message:
        return compile_kernel(specialization, int(target.removeprefix("sm_")), folder)

    values = (*given.arguments.values(), *given.options.values())
    return RecordedLaunch(
        key=(function.fn, compiled["key"]),
        kernel=kernel_name(function.fn),
        arguments=specialization.describe(),
        options=specialization.options,
        compile=into,
        grid=grid,
        values=tuple(repr(a) for a in values if isinstance(a, bool | int | float)),
        tensors=tensors_of(given.arguments),
        observed=as_recorded(kernel_name(function.fn), replace(given, grid=grid)),
    )
