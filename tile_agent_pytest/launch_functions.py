"""The functions through which Triton, its interpreter and cuTile launch a kernel."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

from tile_agent_pytest.device_functions import python_function


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
    stream_of: Callable[..., int] = lambda *_, **__: current_stream()
    """Arguments of the launcher -> the stream of the GPU that the launch is ordered on."""


def kernel_name(function: Any) -> str:
    """As the source names it: 'softmax', or 'Softmax.forward' where it stands in a class."""
    return str(function.__qualname__).replace(".<locals>", "")


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
        yield LaunchFunction(tile, "launch", _of_cutile, _given_to_cutile, _stream_of_cutile)


Wrap = Callable[[LaunchFunction, Callable[..., Any]], Callable[..., Any]]
"""A launcher and the function that is in its place -> what goes there."""

_BEFORE: dict[tuple[Any, str], Callable[..., Any]] = {}
"""What was in a launcher's place before anything of ours was."""


@contextlib.contextmanager
def wrapped(wrap: Wrap) -> Iterator[None]:
    """Have all launches go through functions of ours while the block lasts."""
    with contextlib.ExitStack() as stack:
        for launcher in launch_functions():
            present = getattr(launcher.owner, launcher.name)
            _BEFORE.setdefault((launcher.owner, launcher.name), present)
            stack.enter_context(
                mock.patch.object(launcher.owner, launcher.name, wrap(launcher, present))
            )
        yield


@contextlib.contextmanager
def unwrapped() -> Iterator[None]:
    """Have nothing of ours in the way of a launch while the block lasts."""
    with contextlib.ExitStack() as stack:
        for (owner, name), before in _BEFORE.items():
            stack.enter_context(mock.patch.object(owner, name, before))
        yield


def _of_cutile(
    _stream: Any = None, _grid: Any = None, kernel: Any = None, *_: Any, **__: Any
) -> Any:
    return python_function(kernel)


def _stream_of_cutile(stream: Any = None, *_: Any, **__: Any) -> int:
    number = getattr(stream, "cuda_stream", stream)
    return number if isinstance(number, int) else current_stream()


def current_stream() -> int:
    """What a launch would be ordered on now, if nothing else is said; 0 without a GPU in use."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return int(torch.cuda.current_stream().cuda_stream)


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
