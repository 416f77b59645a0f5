"""Whether a CUDA graph can hold a call."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

_WAITS = "called a synchronizing"
"""How torch's warning of what waits for the GPU begins."""


def can_be_captured(fn: Callable[[], Any]) -> bool:
    """Whether a call makes neither of two steps that a CUDA graph cannot hold; looked at beforehand
    because a capture that fails leaves torch's allocator and generators as if it went on.

    A backward pass adds up gradients on the stream that its leaves were made on, which is not the
    one that is captured. What waits for the GPU, `.item()` for instance, cannot be replayed.
    """
    import torch

    variable: Any = torch.autograd.Variable
    engine, mode = variable._execution_engine, torch.cuda.get_sync_debug_mode()
    watched = variable._execution_engine = _WatchedEngine(engine)
    waits: Any = (
        (torch._C, "_cuda_synchronize"),
        (torch.cuda.Event, "synchronize"),
        (torch.cuda.Stream, "synchronize"),
    )
    originals = [getattr(owner, name) for owner, name in waits]
    waited: list[str] = []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            for (owner, name), original in zip(waits, originals, strict=True):
                setattr(owner, name, _noted(original, waited))
            torch.cuda.set_sync_debug_mode("warn")
            fn()
        finally:
            torch.cuda.set_sync_debug_mode(mode)
            for (owner, name), original in zip(waits, originals, strict=True):
                setattr(owner, name, original)
            variable._execution_engine = engine
    torch.cuda.synchronize()
    waited += [str(w.message) for w in told if str(w.message).startswith(_WAITS)]
    return not watched.ran and not waited


def _noted(function: Callable[..., Any], calls: list[str]) -> Callable[..., Any]:
    """The function, which adds its name to the calls."""

    @functools.wraps(function)
    def noted(*args: Any, **kwargs: Any) -> Any:
        calls.append(function.__name__)
        return function(*args, **kwargs)

    return noted


class _WatchedEngine:
    """Autograd's, which tells whether a backward pass was run."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.ran = False

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        self.ran = True
        return self._engine.run_backward(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)
