"""Compiles of Triton's that another process launches: as if this one could launch them.

Triton asks the driver for the GPU while it compiles, and takes another branch where there is none;
its cache on disk knows nothing of that. So a stand-in answers for the GPU. What else a kernel has
computed while it is compiled may depend on the process: such a kernel is left to the process that
launches it.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock


class AsksTheProcess(Exception):
    """A kernel has Python code of the user's run while it is compiled."""


def is_plain(function: Any) -> bool:
    """Whether a kernel's function has no code run for its name."""
    return getattr(function, "_repr", None) is None


@contextlib.contextmanager
def asking(driver: Any) -> Iterator[None]:
    """While the block lasts, a driver answers for the GPU, whether there is one or not."""
    runtime: Any = importlib.import_module("triton.runtime")
    name = "_active" if hasattr(runtime.driver, "_active") else "active"  # until Triton 3.4
    with mock.patch.object(runtime.driver, name, driver):
        yield


@contextlib.contextmanager
def for_another_process(driver: Any) -> Iterator[None]:
    """While the block lasts, what is compiled is what a process with that driver compiles.

    Args:
        driver: answers for the GPU.

    Raises:
        AsksTheProcess: in the block, or what Triton makes of it, where that cannot be said.
    """
    functions = getattr(importlib.import_module("triton.runtime.jit"), "ConstexprFunction", None)
    if functions is None:  # before 3.5: what is run then cannot be told
        raise AsksTheProcess
    checked = mock.patch.object(functions, "__call__", _of_triton(functions.__call__))
    with asking(driver), checked:
        yield


def _of_triton(call: Callable[..., Any]) -> Callable[..., Any]:
    def checked(function: Any, *args: Any, **kwargs: Any) -> Any:
        if not function.fn.__module__.startswith("triton."):
            raise AsksTheProcess(function.fn.__qualname__)
        return call(function, *args, **kwargs)

    return checked
