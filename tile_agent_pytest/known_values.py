"""Elements of small integer tensors where tensors have no storage, computed beside on the CPU.

Host code asks for few elements before it launches: how many targets count, the longest of some
sequences. They come from tensors that the test makes itself, of indices, offsets and masks: each of
those has a twin on the CPU, and what is computed of twins alone is known too. What is drawn is
drawn anew. Nothing is known of what a kernel may have written: of a tensor whose elements are all
one number, as those of results and counters are, once it has been given to a launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

MOST_ELEMENTS = 2**20
_TWIN = "_tile_agent_twin"
_UNKNOWN = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_")
_REPLACING = ("__set__",)
"""What gives a tensor other memory, as `x.data = y` does; torch lets nobody see `x.set_(y)`."""
_stale: dict[int, Any] = {}
"""Where the elements of twins begin that are not known any more -> their memory, which is kept: no
other may have that place."""
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
    return None if twin is None or _storage(twin) in _stale else twin


def forget_all() -> None:
    """Begin anew: what pretended to be a GPU is over."""
    _stale.clear()


def follow(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], made: Any) -> None:
    """Compute on twins what was computed on tensors without storage.

    Args:
        func: a function of torch.
        args: what it was given, devices as they were named.
        kwargs: by name.
        made: what it returned.
    """
    name = _name(func)
    given, results = list(_tensors((*args, *kwargs.values()))), list(_tensors((made,)))
    if not (_is_torchs_own(func) and any(t.is_meta for t in (*given, *results))):
        return
    written = list(_written(name, args, kwargs))
    is_known = _are_known(given) and all(tensor.is_meta for tensor in written)
    small = all(tensor.numel() <= MOST_ELEMENTS for tensor in results)
    # Made from nothing, whole numbers and truths are asked for, and others are data.
    asked = given or not any(t.dtype.is_floating_point or t.dtype.is_complex for t in results)
    found = None
    if is_known and small and asked and name not in (*_UNKNOWN, *_REPLACING):
        found = _of_twins(func, args, kwargs)
    if found is None:
        _forget(written)
        return
    ours = {_storage(twin) for twin in map(twin_of, given) if twin is not None}
    for one, twin in zip(results, _tensors((found,)), strict=False):
        if one.is_meta and one.shape == twin.shape and one.dtype == twin.dtype:
            # What is on the CPU already torch and NumPy share, where a GPU would have a copy.
            setattr(one, _TWIN, twin if _storage(twin) in ours else twin.clone())


def of_twins(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a function gives whose shape the elements decide, as `unique` and `nonzero`.

    Returns:
        tensors without storage, with twins; None where not all elements are known.
    """
    given = list(_tensors((*args, *kwargs.values())))
    if not (_is_torchs_own(func) and any(t.is_meta for t in given) and _are_known(given)):
        return None
    if any(True for _ in _written(_name(func), args, kwargs)):
        return None
    found = _of_twins(func, args, kwargs)
    twins = list(_tensors((found,)))
    made = [twin.to("meta") for twin in twins]
    for one, twin in zip(made, twins, strict=True):
        setattr(one, _TWIN, twin)
    if isinstance(found, torch.Tensor):
        return made[0]
    return tuple(made) if isinstance(found, tuple | list) and len(found) == len(made) else None


def launched(arguments: Iterable[Any]) -> None:
    """Forget what a kernel may have written: tensors of one number, as results and counters are."""
    with torch._C.DisableTorchFunction():
        for tensor in _tensors(arguments):
            twin = twin_of(tensor)
            if twin is not None and twin.numel() and bool((twin == twin.flatten()[0]).all()):
                _forget([tensor])


def _are_known(tensors: Iterable[torch.Tensor]) -> bool:
    return all(not tensor.is_meta or twin_of(tensor) is not None for tensor in tensors)


def _of_twins(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What it gives on the CPU, in a tuple where that is nothing; None where it fails.

    What it draws leaves the numbers alone that the CPU draws.
    """
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=()):
            if func is torch.Tensor.cuda:
                return _known(args[0])
            found = func(*map(_known, args), **{n: _known(v) for n, v in kwargs.items()})
    except Exception:
        return None
    return () if found is None else found


def _is_torchs_own(func: Any) -> bool:
    """Whether a function is none of a project's, which may launch something."""
    module = getattr(func, "__module__", None) or "torch"
    if module.partition(".")[0] not in ("torch", "_operator", "builtins"):
        return False
    name = getattr(getattr(func, "_schema", func), "name", None)
    name = name if isinstance(name, str) else getattr(func, "_qualified_op_name", None)
    return not isinstance(name, str) or name.startswith(("aten::", "prims::"))


def _forget(tensors: Iterable[torch.Tensor]) -> None:
    for tensor in tensors:
        twin = getattr(tensor, _TWIN, None)
        if twin is not None and (place := _storage(twin)):
            _stale[place] = twin.untyped_storage()


def _name(func: Any) -> str:
    """Without the overload: `add_` of `aten.add_.Tensor`."""
    return str(getattr(func, "__name__", "")).partition(".")[0]


def _written(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    """The tensors that a function writes to, by its name."""
    in_place = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
    in_place = in_place or name in _REPLACING
    in_place = in_place or (name.startswith("__i") and name not in ("__invert__", "__index__"))
    yield from _tensors(args[:1] if in_place else ())
    yield from _tensors((kwargs.get("out"),))


def _storage(tensor: torch.Tensor) -> int | None:
    """Where its elements begin; None of one that is not made of rows of them, as a sparse one."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (NotImplementedError, RuntimeError):
        return None


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
