"""Launches that compiled kernels bear, and Triton's interpreter does not.

Grids may be lists; and `warmup` returns a kernel, of which Triton's own softmax tutorial asks how
many registers it takes, before it launches it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

REGISTERS, SHARED_BYTES = 32, 1024
"""Of a thread and of a block, as far as anybody asks: nothing is compiled, and hosts divide by
both."""


def mend(interpreter: Any) -> None:
    """Have interpreted kernels bear them; a second time changes nothing."""
    function = interpreter.InterpretedFunction
    if hasattr(function, "run"):
        _mend_method(function)
    else:
        _mend_made(function)


def _mend_method(function: Any) -> None:
    run = function.run
    if hasattr(run, "bears_lists"):
        return

    def bearing(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if warmup:
            return WarmKernel(self, kwargs)
        return run(self, *args, grid=_as_tuple(grid), warmup=False, **kwargs)

    bearing.bears_lists = True  # type: ignore[attr-defined]
    function.run = bearing


def _mend_made(function: Any) -> None:
    """Of Triton 3.5 and before: each function is given its `run` when it is made, and none has a
    `warmup`. `function[grid]` does without `run`.

    What was made before is left as it is: nothing of the user's was imported by then.
    """
    make, launcher = function.__init__, function.__getitem__
    if hasattr(make, "bears_lists"):
        return

    def make_bearing(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        run = self.run

        def bearing(*args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
            if warmup:
                return WarmKernel(self, kwargs)
            return run(*args, grid=_as_tuple(grid), warmup=False, **kwargs)

        self.run = bearing

    def warmup(self: Any, *args: Any, grid: Any, **kwargs: Any) -> Any:
        return self.run(*args, grid=grid, warmup=True, **kwargs)

    make_bearing.bears_lists = True  # type: ignore[attr-defined]
    function.__init__ = make_bearing
    function.__getitem__ = lambda self, grid: launcher(self, _as_tuple(grid))
    function.warmup = warmup


class WarmKernel:
    """What stands for a compiled kernel: it has resources to ask for, and can be launched."""

    def __init__(self, function: Any, kwargs: dict[str, Any]) -> None:
        """Of an interpreted function, with what `warmup` was given by name."""
        self._function = function
        self._kwargs = kwargs
        self.n_regs = REGISTERS
        self.n_spills = 0
        self.metadata = SimpleNamespace(
            shared=SHARED_BYTES,
            num_warps=kwargs.get("num_warps", 4),
            num_stages=kwargs.get("num_stages", 3),
            name=function.__name__,
        )
        self.asm: dict[str, str] = {}

    def _init_handles(self) -> None:
        """Load it: there is nothing to load."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """Launch it, with all arguments, or with those that are no constants."""

        def launch(*args: Any) -> Any:
            names = list(inspect.signature(self._function.fn).parameters)
            given = {name: value for name, value in self._kwargs.items() if name in names}
            if len(args) == len(names):
                given = {}
            return self._function.run(*args, grid=grid, warmup=False, **given)

        return launch


def _as_tuple(grid: Any) -> Any:
    if isinstance(grid, list):
        return tuple(grid)
    if not callable(grid):
        return grid

    def called(meta: Any) -> Any:
        return _as_tuple(grid(meta))

    return called
