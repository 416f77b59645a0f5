"""Watches objects of a module that are called as functions are.

A decorator that is a class makes them of functions, and a file may make one of a class of its own.
Nobody knows how each was made, but its module has it by a name.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Collection
from typing import Any

from tile_agent_pytest.capture.call_recorder import EntryPoint, ProcessRecorder
from tile_agent_pytest.capture.elsewhere import HeldKernels
from tile_agent_pytest.examining.tensors import torch

_OTHERS = ("cuda", "tile_agent_pytest", "torch", "triton")
"""Packages whose objects are kernels, operators and the like."""
_BY_OBJECT = "_tile_agent_by_object"


def watch_object(
    value: Any,
    name: str,
    module: types.ModuleType,
    called: str,
    recorder: ProcessRecorder,
    kernels: HeldKernels | None,
    of_device: Collection[Any],
) -> None:
    """Record the calls of an object under its name, if it may be one that stands for a function.

    Args:
        value: what the module holds by that name.
        name: the name.
        module: where it is.
        called: the name by which others import that.
        recorder: told of the calls.
        kernels: what the module holds of the kernel's file, where it is another.
        of_device: functions that kernels call.
    """
    kind = type(value)
    call = inspect.getattr_static(kind, "__call__", None)
    is_other = str(kind.__module__).partition(".")[0] in _OTHERS or isinstance(
        value, torch().nn.Module
    )
    if is_other or isinstance(value, type) or not isinstance(call, types.FunctionType):
        return
    held = [each for each in _held_by(value) if isinstance(each, types.FunctionType)]
    own = [f for f in held if (f.__module__, f.__qualname__) == (module.__name__, name)]
    if not (own or kind.__module__ == module.__name__) or any(f in of_device for f in own):
        return
    by_object = _calls_by_object(kind, call)
    if id(value) not in by_object:

        def called_itself(*args: Any, **kwargs: Any) -> Any:
            return call(value, *args, **kwargs)

        entry = EntryPoint(called, name, own[0] if own else None, kernels=kernels)
        by_object[id(value)] = (value, recorder.watched(entry, called_itself))


def _held_by(value: Any) -> list[Any]:
    """Its attributes, with what was decorated before in them."""
    held = list(getattr(value, "__dict__", {}).values())
    for kind in type(value).__mro__:
        slots = getattr(kind, "__slots__", ())
        slots = (slots,) if isinstance(slots, str) else slots
        held += [getattr(value, slot, None) for slot in slots]
    return held


def _calls_by_object(kind: type, call: Callable[..., Any]) -> dict[int, tuple[Any, Any]]:
    """What is called in the place of objects of a class; the objects are kept, for their ids."""
    known: Any = getattr(call, _BY_OBJECT, None)
    if known is not None:
        return known  # type: ignore[no-any-return]
    by_object: dict[int, tuple[Any, Any]] = {}

    @functools.wraps(call)
    def __call__(instance: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        _, watched = by_object.get(id(instance), (None, None))
        if watched is not None:
            return watched(*args, **kwargs)
        return call(instance, *args, **kwargs)

    setattr(__call__, _BY_OBJECT, by_object)
    owner: Any = kind
    owner.__call__ = __call__
    return by_object
