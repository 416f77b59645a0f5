"""Watches operators of PyTorch's dispatcher whose Python function a kernel's file defines.

`torch.library.custom_op` makes an object of the function, and a project may have a decorator that
hides it in one of its own. Whoever calls the operator, by that object, as `torch.ops.ns.name` or
from a compiled graph, the dispatcher calls what is registered; so that is watched.
"""

from __future__ import annotations

import functools
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tile_agent_pytest.capture.call_recorder import EntryPoint, ProcessRecorder
from tile_agent_pytest.capture.elsewhere import HeldKernels
from tile_agent_pytest.examining.tensors import torch
from tile_agent_pytest.operator_bodies import within

TAG = "_tile_agent_call"
"""Of a context of autograd's: the call that it belongs to."""


def function_of(operator: Any, module: str) -> Callable[..., Any] | None:
    """The function of a module that a `CustomOpDef` was made of; None where it is of another."""
    given = getattr(operator, "_init_fn", None)
    for each in (given, *held_in(given)):  # `triton_op` and decorators have one of theirs around it
        if isinstance(each, types.FunctionType) and each.__module__ == module:
            return each
    return None


def held_in(function: Any) -> Iterator[Any]:
    """What a function has from those around it."""
    for cell in getattr(function, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # empty
            continue


def watch_operators(
    scope: Mapping[str, Any],
    module: str,
    called: str,
    recorder: ProcessRecorder,
    kernels: HeldKernels | None,
) -> None:
    """Put a watch in place of each that a module has registered.

    Args:
        scope: what the module holds.
        module: its name.
        called: the name by which others import it.
        recorder: told of the calls.
        kernels: what it holds of the kernel's file, where it is another.
    """
    registered: Any = getattr(sys.modules.get("torch._library.custom_ops"), "OPDEFS", {})
    for qualified, operator in list(registered.items()):
        function = function_of(operator, module)
        if function is None or hasattr(operator, TAG):
            continue
        setattr(operator, TAG, True)
        if kernels is None:
            recorder.write({"registered": qualified})
        held = list(scope.items())
        names = [name for name, value in held if _names(value, operator, qualified)]
        if getattr(operator, "_backward_fn", None) is None:  # of a function there is no gradient
            names += [name for name, value in held if _is_or_wraps(value, function)]
        if name := next(iter(names), ""):
            entry = EntryPoint(called, name, function, kernels=kernels)
            _WatchedOperator(operator, recorder).watch(entry)
        else:
            _WatchedOperator(operator, recorder).watch(None)


def follow_registrations(recorder: ProcessRecorder) -> None:
    """Have `Library.impl` register what calls a function's watch, once it has one: a file registers
    its functions before it is loaded, and they are watched after that."""
    library: Any = torch().library.Library
    original = library.impl
    if hasattr(original, TAG):
        return

    @functools.wraps(original)
    def impl(self: Any, op_name: Any, fn: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(fn, types.FunctionType) and not str(fn.__module__).startswith("torch."):
            fn = _following(fn, recorder)
        return original(self, op_name, fn, *args, **kwargs)

    setattr(impl, TAG, True)
    library.impl = impl


def _following(function: Callable[..., Any], recorder: ProcessRecorder) -> Callable[..., Any]:
    layers = [function]  # `operator_bodies` may have put one around it
    while hasattr(layers[-1], "__wrapped__"):
        layers.append(layers[-1].__wrapped__)

    @functools.wraps(function)
    def followed(*args: Any, **kwargs: Any) -> Any:
        known = (recorder.in_place[each] for each in layers if each in recorder.in_place)
        watched = next(known, None)
        return (within(watched) if watched else function)(*args, **kwargs)

    return followed


def _names(value: Any, operator: Any, qualified: str) -> bool:
    """Whether a value is the operator, or `torch.ops.ns.name`."""
    if value is operator:
        return True
    if not type(value).__module__.startswith("torch."):
        return False
    schema = getattr(value, "_schema", None)
    return qualified in (getattr(value, "_qualified_op_name", ""), getattr(schema, "name", ""))


def _is_or_wraps(value: Any, function: Callable[..., Any]) -> bool:
    held = (value, getattr(value, "__wrapped__", None))
    return isinstance(value, types.FunctionType) and any(each is function for each in held)


class _WatchedOperator:
    """One operator; its calls count for what calls it, where that is watched itself."""

    def __init__(self, operator: Any, recorder: ProcessRecorder) -> None:
        self._operator = operator
        self._recorder = recorder
        self._here = threading.local()

    def watch(self, entry: EntryPoint | None) -> None:
        """Have calls recorded under a name, or, where there is none, only know their gradients."""
        registered: Any = getattr(self._operator, "_backend_fns", {})
        unseen = getattr(torch(), "_disable_dynamo", _same)  # as what it registers itself
        for device, function in list(registered.items()):
            watched = self._followed(function)
            if entry is not None:
                watched = self._recorder.watched(entry, watched)
            registered[device] = unseen(watched)
        if getattr(self._operator, "_backward_fn", None) is not None:
            self._watch_gradients()

    def _followed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def followed(*args: Any, **kwargs: Any) -> Any:
            self._here.call = self._recorder.current
            return function(*args, **kwargs)

        return followed

    def _watch_gradients(self) -> None:
        """The context is set up by the thread that has just called the function."""
        setup, backward = self._operator._setup_context_fn, self._operator._backward_fn

        def tagged_setup(*args: Any, **kwargs: Any) -> None:
            tag(args[0] if args else kwargs.get("ctx"), self._here.__dict__.pop("call", None))
            if setup is not None:
                setup(*args, **kwargs)

        @functools.wraps(backward)
        def timed_backward(ctx: Any, *args: Any) -> Any:
            with self._recorder.in_backward(getattr(ctx, TAG, None)):
                return backward(ctx, *args)

        self._operator._setup_context_fn = tagged_setup
        self._operator._backward_fn = timed_backward


def _same(function: Any) -> Any:
    return function


def tag(context: Any, call: Any) -> None:
    """Have a context of autograd's know the call that it belongs to."""
    if isinstance(context, torch().autograd.function.FunctionCtx):
        setattr(context, TAG, call)
