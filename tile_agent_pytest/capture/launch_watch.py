"""Tells the recorder of each launch of a kernel of the file."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, Protocol

from tile_agent_pytest.launch_functions import launch_functions

LAUNCHING_MODULES = frozenset({"triton.runtime.jit", "triton.runtime.interpreter", "cuda.tile"})
_MARK = "_tile_agent_captures"


class LaunchListener(Protocol):
    """Who is told."""

    kernel: str
    """The real path of the file."""

    def launched(self, name: str) -> None:
        """A kernel of that name is about to be launched."""


def watch_launches(listener: LaunchListener) -> None:
    """Put a watch in place of what launches, wherever that is not one already."""
    for launcher in launch_functions():
        original = getattr(launcher.owner, launcher.name)
        if not hasattr(original, _MARK):
            watched = _watched(original, launcher.function_of, listener)
            setattr(launcher.owner, launcher.name, watched)


def _watched(
    original: Callable[..., Any], function_of: Callable[..., Any], listener: LaunchListener
) -> Callable[..., Any]:
    known: dict[Any, bool] = {}

    @functools.wraps(original)
    def launch(*args: Any, **kwargs: Any) -> Any:
        function = function_of(*args, **kwargs)
        code = getattr(function, "__code__", None)
        if code is not None and not kwargs.get("warmup"):
            if code not in known:
                known[code] = os.path.realpath(code.co_filename) == listener.kernel
            if known[code]:
                listener.launched(function.__name__)
        return original(*args, **kwargs)

    setattr(launch, _MARK, True)
    return launch
