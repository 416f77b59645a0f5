"""The function that a GPU carries out a registered operator by: `torch.library` has several ways.

On the meta device PyTorch asks for what stands in for an operator, which launches nothing. So who
is to see launches there calls what is registered for the GPU.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

FOR_ALL = ("CompositeExplicitAutograd", "CompositeImplicitAutograd")
"""Keys of the dispatcher by which a function is called for any device, meta too, where nothing is
registered for that alone."""
_registered: dict[str, dict[str, Callable[..., Any]]] = {}
"""Operator -> key -> function, as they were registered by `Library.impl`."""


@contextlib.contextmanager
def followed() -> Iterator[None]:
    """While the block lasts, know what is registered by `Library.impl`.

    `torch.library.impl`, `register_kernel` and `custom_op` end there, too.
    """
    original = torch.library.Library.impl

    @functools.wraps(original)
    def impl(
        library: Any, op_name: Any, fn: Any, dispatch_key: str = "", *args: Any, **kwargs: Any
    ) -> Any:
        made = original(library, op_name, fn, dispatch_key, *args, **kwargs)
        key = dispatch_key or library.dispatch_key or "CompositeImplicitAutograd"
        if callable(fn) and fn is not torch.library.fallthrough_kernel:
            _registered.setdefault(_name_of(library, op_name), {})[key] = fn
        return made

    try:
        with mock.patch.object(torch.library.Library, "impl", impl):
            yield
    finally:
        _registered.clear()


def launching(func: Any) -> Callable[..., Any] | None:
    """What carries out an operator of the project's on a GPU; None of anything else."""
    name = getattr(getattr(func, "_schema", func), "name", None)
    name = name if isinstance(name, str) else getattr(func, "_qualified_op_name", None)
    if not isinstance(name, str):
        return None
    known = getattr(torch._library.custom_ops, "OPDEFS", {}).get(name)
    if known is not None:
        own = getattr(known, "_backend_fns", {}).get("cuda")
        found: Callable[..., Any] | None = own or getattr(known, "_init_fn", None)
        return found
    overload = getattr(func, "_overloadname", "")
    by_key = _registered.get(f"{name}.{overload}") or _registered.get(name) or {}
    keys = ("CUDA", *(FOR_ALL if "Meta" in by_key else ()))
    return next((by_key[key] for key in keys if key in by_key), None)


def _name_of(library: Any, op_name: Any) -> str:
    """`ns::name`, with the overload where there is one; an operator says itself what it is."""
    if not isinstance(op_name, str):
        schema = op_name._schema
        op_name = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
    bare = op_name.rpartition("::")[2]
    return f"{library.ns}::{bare}".removesuffix(".default")
