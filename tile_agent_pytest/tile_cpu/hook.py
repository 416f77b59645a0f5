"""The only file that touches what cuda.tile does not document.

Every device function of cuda.tile (`ct.load`, `ct.exp`, ...) asks the current *dispatch mode* what
a call from host code means; normally it means an error. We install a mode that computes the call.
This private class has not changed from 1.2.0 to 1.7.0; `check()` refuses a version where it has.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from tile_agent_pytest.tile_cpu.errors import UnsupportedVersion

Call = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]

KNOWN = "1.2 to 1.7"


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as problem:
        raise UnsupportedVersion(
            f"cannot import {name}: {problem}; the CPU execution needs cuda-tile {KNOWN}:"
            " pip install cuda-tile"
        ) from problem


ct: Any = _import("cuda.tile")
_dispatch: Any = _import("cuda.tile._dispatch_mode")


def check() -> None:
    """Raise `UnsupportedVersion` unless the hook looks as it did when this was written."""
    mode = getattr(_dispatch, "DispatchMode", None)
    method = getattr(mode, "call_tile_function_from_host", None)
    if method is None or list(inspect.signature(method).parameters) != [
        "self",
        "func",
        "args",
        "kwargs",
    ]:
        raise UnsupportedVersion(
            f"cuda-tile {ct.__version__} has another dispatch hook than {KNOWN};"
            ' install a version that is known: pip install "cuda-tile<1.8"'
        )


@contextmanager
def dispatching_to(call: Call) -> Iterator[None]:
    """While this is open, a device function called in this thread is `call(func, args, kwargs)`."""

    class Mode(_dispatch.DispatchMode):  # type: ignore[misc]
        def call_tile_function_from_host(
            self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> Any:
            return call(func, args, kwargs)

    with Mode().as_current():
        yield


def python_function(kernel: Any) -> FunctionType:
    """The function below a `@ct.kernel`."""
    function: FunctionType = kernel._pyfunc
    return function


def is_operation(function: Any) -> bool:
    """Whether a dispatched function is one of cuda.tile's, not a user's `@ct.function`."""
    return str(function.__module__).startswith("cuda.tile")
