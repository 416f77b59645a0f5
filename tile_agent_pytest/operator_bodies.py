"""Keeps a mode of PyTorch's in force in the Python functions that carry out registered operators.

A mode sees the call of an operator, and is left for as long as it handles that: what the function
behind a `torch.library.custom_op` allocates would go past it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

_kept: list[Any] = []
"""Modes that hold in the bodies, the outermost first."""
_originals: list[Callable[..., Any]] = []
"""What registers, while something else is in its place."""


def keep(mode: Any) -> None:
    """Have a mode hold in all that is registered from here on, until it is dropped."""
    if not _kept:
        _watch_registrations()
    _kept.append(mode)


def drop(mode: Any) -> None:
    """Have it hold there no more, whenever that was registered."""
    _kept.remove(mode)
    if not _kept:
        import torch

        torch.library.Library.impl = _originals.pop()


def _watch_registrations() -> None:
    import torch

    original = torch.library.Library.impl

    @functools.wraps(original)
    def impl(library: Any, op_name: Any, fn: Any, *args: Any, **kwargs: Any) -> Any:
        if callable(fn) and fn is not torch.library.fallthrough_kernel:
            fn = within(fn)
        return original(library, op_name, fn, *args, **kwargs)

    _originals.append(original)
    torch.library.Library.impl = impl


def within(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, in which the modes hold that are kept when it is called."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        from torch.overrides import _get_current_function_mode_stack

        in_force = {id(mode) for mode in _get_current_function_mode_stack()}
        with contextlib.ExitStack() as stack:
            for mode in _kept:
                if id(mode) not in in_force:
                    stack.enter_context(mode)
            return function(*args, **kwargs)

    return called
