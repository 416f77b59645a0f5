"""Elements of small integer tensors where tensors have no storage, computed beside on the CPU.

Host code asks for few elements before it launches: how many targets count, the longest of some
sequences. They come from tensors that the test makes itself, of indices, offsets and masks: each of
those has a twin on the CPU, and what is computed of twins alone is known too. What is drawn is
drawn anew. Nothing is known of what a kernel may have written: of a tensor that was made of one
number, or of nothing, once it has been given to a launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

MOST_ELEMENTS = 2**20
_TWIN, _FILLED, _STALE = "_tile_agent_twin", "_tile_agent_filled", "_tile_agent_stale"
_UNKNOWN = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_")
_FILLING = (
    *("zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like"),
    *("new_full", "zero_", "fill_"),
)
READING: tuple[Callable[..., Any], ...] = (
    torch.Tensor.item,
    torch.Tensor.tolist,
    torch.Tensor.numpy,
    torch.Tensor.__bool__,
    torch.Tensor.__int__,
    torch.Tensor.__float__,
    torch.Tensor.__index__,
)
"""What gives Python a tensor's elements."""


def twin_of(tensor: Any) -> torch.Tensor | None:
    """The tensor with the elements of one that has no storage; None where they are not known."""
    twin: torch.Tensor | None = getattr(tensor, _TWIN, None)
    if twin is None or getattr(_base(twin), _STALE, False):
        return None
    return twin


def follow(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], made: Any) -> None:
    """Compute on twins what was computed on tensors without storage.

    Args:
        func: a function of torch.
        args: what it was given, devices as they were named.
        kwargs: by name.
        made: what it returned.
    """
    name = getattr(func, "__name__", "")
    given = list(_tensors((*args, *kwargs.values())))
    if not (_is_torchs_own(func) and any(t.is_meta for t in (*given, *_results(made)))):
        return
    known = all(not tensor.is_meta or twin_of(tensor) is not None for tensor in given)
    if name in _UNKNOWN or not known or not (_is_small(made) and (given or _counts(made))):
        _forget(_written(name, args, kwargs))
        return
    try:
        found = _of_twins(func, args, kwargs)
    except Exception:
        _forget(_written(name, args, kwargs))
        return
    theirs = {_storage(tensor) for tensor in given if not tensor.is_meta}
    for one, twin in zip(_results(made), _results(found), strict=False):
        if one.is_meta and one.shape == twin.shape and one.dtype == twin.dtype:
            if _storage(twin) in theirs:  # where it is on the CPU already, torch makes no copy
                twin = twin.clone()
            setattr(one, _TWIN, twin)
            if name in _FILLING:
                setattr(_base(twin), _FILLED, True)


def of_twins(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a function gives whose shape the elements decide, as `unique` and `nonzero`.

    Returns:
        tensors without storage, with twins; None where not all elements are known.
    """
    given = list(_tensors((*args, *kwargs.values())))
    known = all(not tensor.is_meta or twin_of(tensor) is not None for tensor in given)
    if not (_is_torchs_own(func) and any(tensor.is_meta for tensor in given) and known):
        return None
    try:
        found = _of_twins(func, args, kwargs)
    except Exception:
        return None
    made = [each.to("meta") for each in _results(found)]
    for one, twin in zip(made, _results(found), strict=True):
        setattr(one, _TWIN, twin)
    if isinstance(found, torch.Tensor):
        return made[0]
    return tuple(made) if isinstance(found, tuple | list) and len(found) == len(made) else None


def _of_twins(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with torch.no_grad():
        if func is torch.Tensor.cuda:
            return _known(args[0]).clone()
        return func(*map(_known, args), **{n: _known(v) for n, v in kwargs.items()})


def _is_torchs_own(func: Any) -> bool:
    """Whether a function is none of a project's operators, which may launch something."""
    name = getattr(getattr(func, "_schema", func), "name", None)
    name = name if isinstance(name, str) else getattr(func, "_qualified_op_name", None)
    return not isinstance(name, str) or name.startswith(("aten::", "prims::"))


def launched(arguments: Iterable[Any]) -> None:
    """Forget what a kernel may have written: of tensors that were made for its results."""
    with torch._C.DisableTorchFunction():
        for tensor in _tensors(arguments):
            twin = getattr(tensor, _TWIN, None)
            if twin is not None and getattr(_base(twin), _FILLED, False):
                setattr(_base(twin), _STALE, True)


def _forget(tensors: Iterable[torch.Tensor]) -> None:
    for tensor in tensors:
        if (twin := getattr(tensor, _TWIN, None)) is not None:
            setattr(_base(twin), _STALE, True)


def _written(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    """The tensors that a function writes to, by its name."""
    in_place = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
    in_place = in_place or (name.startswith("__i") and name not in ("__invert__", "__index__"))
    yield from _tensors(args[:1] if in_place else ())
    yield from _tensors((kwargs.get("out"),))


def _storage(tensor: torch.Tensor) -> int | None:
    """Where its elements begin; None of one that is not made of rows of them, as a sparse one."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (NotImplementedError, RuntimeError):
        return None


def _base(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor._base is None else tensor._base


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)
        elif isinstance(value, dict):
            yield from _tensors(value.values())
        elif isinstance(base := getattr(value, "base", None), torch.Tensor):
            yield base  # of a descriptor that the host made


def _known(value: Any) -> Any:
    """The same argument on the CPU."""
    if isinstance(value, torch.Tensor):
        twin = twin_of(value)
        return value if twin is None else twin
    if isinstance(value, torch.device) or (
        isinstance(value, str) and (value == "cuda" or value.startswith(("cuda:", "meta")))
    ):
        return torch.device("cpu")
    if type(value) in (tuple, list):
        return type(value)(map(_known, value))
    return value


def _results(made: Any) -> list[torch.Tensor]:
    return list(_tensors((made,)))


def _is_small(made: Any) -> bool:
    return all(tensor.numel() <= MOST_ELEMENTS for tensor in _results(made))


def _counts(made: Any) -> bool:
    """Whether all that was made are whole numbers or truths: those are asked for, not data."""
    return all(not (t.dtype.is_floating_point or t.dtype.is_complex) for t in _results(made))
