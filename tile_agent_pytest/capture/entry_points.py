"""Watches what of a kernel's file can be called from outside: functions, methods, operators.

An operator with a gradient is entered through `apply`. Its context takes along which call it was,
so that what `backward` launches later, perhaps in another thread, counts for that call.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Collection
from typing import Any

from tile_agent_pytest.capture.call_recorder import EntryPoint, ProcessRecorder
from tile_agent_pytest.capture.elsewhere import HeldKernels
from tile_agent_pytest.capture.named_objects import watch_object
from tile_agent_pytest.capture.operators import TAG, function_of, held_in, tag, watch_operators
from tile_agent_pytest.device_functions import device_functions
from tile_agent_pytest.examining.tensors import torch


class EntryPoints:
    """Those of one module.

    Args:
        module: the kernel's file, or one that launches its kernels.
        recorder: told of the calls.
        kernels: what it holds of the file, where `module` is another.
        called: the name by which others import it, where it has another here.
    """

    def __init__(
        self,
        module: types.ModuleType,
        recorder: ProcessRecorder,
        kernels: HeldKernels | None = None,
        called: str = "",
    ) -> None:
        self._module = module
        self._name = called or module.__name__
        self._recorder = recorder
        self._kernels = kernels
        self._watches: dict[Any, Any] = {}
        """Function -> what watches it."""
        self._classes: set[type] = set()

    def watch(self) -> None:
        """Put a watch in place of each function and method that the module defines by now."""
        of_device = device_functions([self._module])
        in_place = set(self._watches.values())
        for name, value in list(vars(self._module).items()):
            if not self._defines(value, name):
                continue
            if isinstance(value, types.FunctionType):
                if value not in of_device and value not in in_place:
                    entry = EntryPoint(self._name, name, kernels=self._kernels)
                    self._watches[value] = self._recorder.watched(entry, value)
                    self._recorder.in_place[value] = self._watches[value]
                    setattr(self._module, name, self._watches[value])
            elif isinstance(value, type) and value not in self._classes:
                self._classes.add(value)
                self._watch_class(value)
        for name, value in list(vars(self._module).items()):
            owner = getattr(value, "__self__", None)
            if (
                isinstance(owner, type)
                and owner in self._classes
                and issubclass(owner, torch().autograd.Function)
                and value.__name__ == "apply"
            ):
                setattr(self._module, name, owner.apply)  # type: ignore[attr-defined]  # `rms_norm = RMSNorm.apply`
        known = (self._module, self._name, self._recorder, self._kernels)
        for name, value in list(vars(self._module).items()):
            watch_object(value, name, *known, of_device)
        watch_operators(vars(self._module), self._module.__name__, *known[1:])

    def _defines(self, value: Any, name: str) -> bool:
        called = self._module.__name__
        return getattr(value, "__module__", None) == called or _decorates(value, called, name)

    def _watch_class(self, owner: type) -> None:
        if issubclass(owner, torch().autograd.Function):
            _watch_operator(owner, self._name, self._recorder, self._kernels)
            return
        for held, function in list(vars(owner).items()):
            if isinstance(function, types.FunctionType) and function in self._watches:
                setattr(owner, held, self._watches[function])  # `forward = gemv_forward`
        watched = set(self._watches.values())
        _watch_methods(owner, self._name, self._recorder, self._kernels, watched)


def _decorates(value: Any, module: str, name: str) -> bool:
    """Whether a function of another file holds the one that is defined here by that name.

    It is what a decorator has made of it, then, and does not say so.
    """
    if not isinstance(value, types.FunctionType):
        return False
    return any(
        isinstance(each, types.FunctionType)
        and (each.__module__, each.__qualname__) == (module, name)
        for held in held_in(value)
        for each in (held, function_of(held, module))
    )


def _watch_operator(
    operator: Any, module: str, recorder: ProcessRecorder, kernels: HeldKernels | None
) -> None:
    forward = operator.forward
    name = f"{operator.__qualname__}.apply"
    entry = EntryPoint(module, name, forward, bound=1, kernels=kernels)
    inherited = inspect.getattr_static(operator, "apply")

    def original(cls: Any, *args: Any, **kwargs: Any) -> Any:
        """As a class method of Python or, since torch 2.14, of C."""
        return inherited.__get__(None, cls)(*args, **kwargs)

    watched = recorder.watched(entry, original)

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        """Of a class that derives from the operator, its own file tells."""
        return (watched if cls is operator else original)(cls, *args, **kwargs)

    backward = operator.backward
    with_context = "setup_context" not in vars(operator)

    @functools.wraps(forward)
    def tagged_forward(*args: Any, **kwargs: Any) -> Any:
        tag(args[0] if args else None, recorder.current)
        return forward(*args, **kwargs)

    @functools.wraps(backward)
    def timed_backward(ctx: Any, *args: Any) -> Any:
        with recorder.in_backward(getattr(ctx, TAG, None)):
            return backward(ctx, *args)

    operator.apply = classmethod(apply)
    if with_context:
        operator.forward = staticmethod(tagged_forward)
    else:
        setup = operator.setup_context

        @functools.wraps(setup)
        def tagged_setup(ctx: Any, *args: Any, **kwargs: Any) -> Any:
            tag(ctx, recorder.current)
            return setup(ctx, *args, **kwargs)

        operator.setup_context = staticmethod(tagged_setup)
    operator.backward = staticmethod(timed_backward)


def _watch_methods(
    owner: type,
    module: str,
    recorder: ProcessRecorder,
    kernels: HeldKernels | None,
    watched: Collection[Any],
) -> None:
    is_layer = issubclass(owner, torch().nn.Module)
    for name, value in list(vars(owner).items()):
        if isinstance(value, types.FunctionType) and value in watched:
            continue  # a function of the module that the class holds
        called = f"{owner.__qualname__}.{name}"
        if name == "__init__" and isinstance(value, types.FunctionType):
            setattr(owner, name, recorder.remembering(value))
        elif isinstance(value, staticmethod | classmethod):
            inner = value.__func__
            if not isinstance(inner, types.FunctionType):
                continue  # a kernel, say, whose launches name the class
            skipped = 1 if isinstance(value, classmethod) else 0
            entry = EntryPoint(module, called, inner, bound=skipped, kernels=kernels)
            setattr(owner, name, type(value)(recorder.watched(entry, inner)))
        elif isinstance(value, types.FunctionType) and (
            not name.startswith("__") or name == "__call__"
        ):
            by_call = name == "__call__" or (is_layer and name == "forward")
            reached = owner.__qualname__ if by_call else called
            entry = EntryPoint(module, reached, value, bound=1, owner=owner, kernels=kernels)
            setattr(owner, name, recorder.watched(entry, value))
