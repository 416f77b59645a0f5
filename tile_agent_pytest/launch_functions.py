"""The functions through which Triton, its interpreter and cuTile launch a kernel."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Given:
    """What a launch is given."""

    grid: Any
    """A tuple, or what computes it from the arguments."""
    arguments: Mapping[str, Any]
    """By the kernel's parameters."""
    options: Mapping[str, Any]
    """What is no parameter of the kernel: `num_warps` and the like."""


@dataclass(frozen=True)
class LaunchFunction:
    """A function that launches, as an attribute that can be replaced."""

    owner: Any
    name: str
    function_of: Callable[..., Any]
    """Arguments of the launcher -> the Python function of the kernel."""
    given_of: Callable[..., Given]
    """Arguments of the launcher -> those of the kernel."""


def launch_functions() -> Iterator[LaunchFunction]:
    """Those of the modules that are loaded."""
    if (jit := sys.modules.get("triton.runtime.jit")) is not None:
        yield LaunchFunction(
            jit.JITFunction, "run", lambda kernel, *_, **__: kernel.fn, given_to_triton
        )
    if (interpreter := sys.modules.get("triton.runtime.interpreter")) is not None:
        yield LaunchFunction(
            interpreter.GridExecutor,
            "__call__",
            lambda executor, *_, **__: executor.fn,
            _given_to_interpreter,
        )
    if (tile := sys.modules.get("cuda.tile")) is not None:
        yield LaunchFunction(tile, "launch", _of_cutile, _given_to_cutile)


def _of_cutile(
    _stream: Any = None, _grid: Any = None, kernel: Any = None, *_: Any, **__: Any
) -> Any:
    return getattr(getattr(kernel, "_annotated_function", None), "pyfunc", None)


def given_to_triton(kernel: Any, *args: Any, grid: Any = (), **kwargs: Any) -> Given:
    """What `JITFunction.run` is given."""
    kwargs.pop("warmup", None)  # tells Triton to compile and not to launch
    return _by_name(kernel.arg_names, args, kwargs, grid)


def _given_to_interpreter(executor: Any, *args: Any, **kwargs: Any) -> Given:
    return _by_name(executor.arg_names, args, kwargs, executor.grid)


def _given_to_cutile(
    stream: Any = None, grid: Any = (), kernel: Any = None, args: Any = (), **_: Any
) -> Given:
    names = inspect.signature(_of_cutile(stream, grid, kernel)).parameters
    return Given(grid, dict(zip(names, args, strict=False)), {})


def evaluated(grid: Any, arguments: Mapping[str, Any]) -> tuple[int, ...]:
    """A grid, or what computes it, as numbers; empty where it asks for more than is given."""
    try:
        return tuple(int(n) for n in (grid(dict(arguments)) if callable(grid) else grid))
    except Exception:  # the launch itself will say it, if it gets that far
        return ()


def _by_name(names: Any, args: Any, kwargs: Mapping[str, Any], grid: Any) -> Given:
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    options = {name: value for name, value in kwargs.items() if name not in names}
    return Given(grid, {name: given[name] for name in names if name in given}, options)
