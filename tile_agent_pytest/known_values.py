"""Elements of small integer tensors where tensors have no storage, computed beside on the CPU.

Host code asks for few elements before it launches: how many targets count, the longest of some
sequences. They come from tensors that the test makes itself, of indices, offsets and masks: each of
those has a twin on the CPU, and what is computed of twins alone is known too. What is drawn is
drawn anew. Of elements that are not known it is known that they are numbers: a test may insist on
that before it launches anything. Nothing is known of what a kernel may have written: of a tensor
whose elements are all one number, as those of results and counters are, once it has been given to a
launch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

MOST_ELEMENTS = 2**20
FEW_ELEMENTS = 64
_TWIN = "_tile_agent_twin"
_SINCE = "_tile_agent_twin_since"
_UNKNOWN = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_")
_REPLACING = ("__set__",)
"""What gives a tensor other memory, as `x.data = y` does; of `x.set_(y)` `replaced` is told."""
_BUFFERS = ("running_mean", "running_var")
"""What operators write to in training whose schema does not say so, as `native_batch_norm`."""
_TELLING = {"isnan": False, "isinf": False, "isposinf": False, "isneginf": False, "isfinite": True}
"""What is so of each element that a test draws or computes, though nobody knows which it is."""
_stale: dict[int, Any] = {}
"""Where the elements of twins begin that are not known any more -> their memory, which is kept: no
other may have that place."""
_forgotten = [0]
"""How often all twins were forgotten at once."""
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
    is_old = twin is None or getattr(tensor, _SINCE, -1) != _forgotten[0]
    return None if is_old or _storage(twin) in _stale else twin


def forget_all() -> None:
    """Begin anew: what pretended to be a GPU is over."""
    _stale.clear()


def writes_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Writes | None:
    """What notes the memory that a function writes to; None where nothing is known of its tensors.

    Its name does not always tell: `batch_norm` writes to running statistics, `relu` to its input
    where it is asked to.
    """
    given = _tensors((*args, *kwargs.values()))
    is_known = _is_torchs_own(func) and any(twin_of(tensor) is not None for tensor in given)
    return Writes() if is_known else None


class Writes(TorchDispatchMode):  # type: ignore[misc]
    """What the operators write to that a function consists of, by their schemas."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        given = dict(zip((each.name for each in func._schema.arguments), args, strict=False))
        given |= kwargs or {}
        trains = given.get("training", given.get("train", True))
        for each in func._schema.arguments:
            is_written = each.alias_info is not None and each.alias_info.is_write
            if is_written or (trains and each.name in _BUFFERS):
                self.memory.update(map(_memory, _tensors((given.get(each.name),))))
        return func(*args, **(kwargs or {}))


def _memory(tensor: torch.Tensor) -> int:
    """Tells the memory of tensors apart that have none; 0 of what is not made of rows."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return 0


def replaced(tensor: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Follow `tensor.set_(...)`, which gave it the memory of another: they are one from here on.

    Whose memory a storage is nobody knows: then nothing is known any more.
    """
    source = args[0] if args else kwargs.get("source")
    if not tensor.is_meta:
        return
    setattr(tensor, _TWIN, None)
    if not isinstance(source, torch.Tensor | None):
        _forgotten[0] += 1
    elif source is not None and (twin := twin_of(source)) is not None:
        place = {name: value for name, value in kwargs.items() if name != "source"}
        same = torch.empty(0, dtype=twin.dtype)
        _give(tensor, torch._C.TensorBase.set_(same, twin, *args[1:], **place))


def _give(tensor: torch.Tensor, twin: torch.Tensor) -> None:
    setattr(tensor, _TWIN, twin)
    setattr(tensor, _SINCE, _forgotten[0])


def follow(
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    made: Any,
    memory: Collection[int] = (),
) -> None:
    """Compute on twins what was computed on tensors without storage.

    Args:
        func: a function of torch.
        args: what it was given, devices as they were named.
        kwargs: by name.
        made: what it returned.
        memory: what was seen to be written to, see `writes_of`.
    """
    name = _name(func)
    if name == "set_" or func == torch.Tensor.data.__set__:
        replaced(args[0], args[1:], kwargs)
        return
    given, results = list(_tensors((*args, *kwargs.values()))), list(_tensors((made,)))
    if not (_is_torchs_own(func) and any(t.is_meta for t in (*given, *results))):
        return
    written = list(_written(name, args, kwargs))
    written += [tensor for tensor in given if tensor.is_meta and _memory(tensor) in memory]
    is_known = _are_known(given) and all(tensor.is_meta for tensor in written)
    small = all(tensor.numel() <= MOST_ELEMENTS for tensor in results)
    # Made from nothing, whole numbers and truths are asked for, and others are data.
    asked = given or not any(t.dtype.is_floating_point or t.dtype.is_complex for t in results)
    found = None
    if is_known and small and asked and name not in (*_UNKNOWN, *_REPLACING):
        found = _of_twins(func, args, kwargs)
    if found is None and name in _TELLING:
        found = torch.tensor(_TELLING[name]).expand(given[0].shape)
    if found is None:
        _forget(written)
        return
    ours = {_storage(twin) for twin in map(twin_of, given) if twin is not None}
    for one, twin in zip(results, _tensors((found,)), strict=False):
        if one.is_meta and one.shape == twin.shape and one.dtype == twin.dtype:
            # What is on the CPU already torch and NumPy share, where a GPU would have a copy.
            is_kept = _storage(twin) in ours or twin.numel() > MOST_ELEMENTS
            _give(one, twin if is_kept else twin.clone())


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
        _give(one, twin)
    if isinstance(found, torch.Tensor):
        return made[0]
    return tuple(made) if isinstance(found, tuple | list) and len(found) == len(made) else None


def launched(arguments: Iterable[Any]) -> None:
    """Forget what a kernel may have written: tensors of one number, as results and counters are."""
    with torch._C.DisableTorchFunction():
        for tensor in _tensors(arguments):
            twin = twin_of(tensor)
            if twin is not None and twin.numel() and _is_of_one_number(twin):
                _forget([tensor])


def _is_of_one_number(twin: torch.Tensor) -> bool:
    """A few elements tell mostly: tests that time launch a kernel thousands of times."""
    elements = twin.flatten()
    few = elements[:: max(1, len(elements) // FEW_ELEMENTS)]
    return bool((few == few[0]).all()) and bool((elements == few[0]).all())


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
