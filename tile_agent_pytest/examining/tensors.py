"""The tensors that a callable reads and writes, and what can be told of one without a copy."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tile_agent_pytest.examining.arrays import as_fixed, as_tensor, is_fixed, library_of

MOST_TENSORS = 256
_DEEPEST = 6
CHUNK = 1 << 24
"""Elements that are looked at together: eight bytes each are needed for that."""
_LARGE_PART = 1 / 16
"""Of a device's memory: worth the time that it takes to give it back."""


def torch() -> Any:
    """torch, which a worker of a GPU kernel has imported."""
    import torch as module

    return module


def synchronize() -> None:
    """Wait for every stream of the GPU, not for the one that a callable was given."""
    if torch().cuda.is_available() and torch().cuda.is_initialized():
        torch().cuda.synchronize()


def give_back_cached() -> None:
    """Leave the device's memory to others where torch keeps a large part of it for later."""
    cuda = torch().cuda
    if cuda.is_available() and cuda.is_initialized():
        _, total = cuda.mem_get_info()
        if cuda.memory_reserved() - cuda.memory_allocated() > total * _LARGE_PART:
            cuda.empty_cache()


def give_back_all() -> None:
    """Leave the device's memory to whoever takes their turn: another arm, a candidate's tests."""
    if torch().cuda.is_initialized():
        torch().cuda.empty_cache()


@contextlib.contextmanager
def set_aside() -> Iterator[None]:
    """What the block allocates on the GPU lies in memory of its own.

    torch keeps what is freed for each stream by itself, and gives of equal blocks the one with the
    lowest address: so what is timed finds its memory where it did before.
    """
    cuda = torch().cuda
    if not (cuda.is_available() and cuda.is_initialized()):
        yield
        return
    aside = _stream_aside(cuda.current_device())
    aside.wait_stream(cuda.current_stream())
    try:
        with cuda.stream(aside):
            yield
    finally:
        cuda.current_stream().wait_stream(aside)


@functools.cache
def _stream_aside(device: int) -> Any:
    return torch().cuda.Stream(device)


KNOWN_BYTE = 0xFF
"""NaN in every floating-point type, -1 in every integer."""
_KNOWN_BLOCKS = 3
"""Of each size: an allocator need not hand out the one that was freed last."""
_MOST_KNOWN_BYTES = 4 << 30
_PART_OF_THE_FREE = 16
"""Of the memory that a GPU has left, what is taken for nothing but a known content."""


def blocks_of(tensors: Iterable[Any]) -> list[tuple[Any, int]]:
    """Device and bytes of each, as it takes them from an allocator."""
    return [(tensor.device, tensor.numel() * tensor.element_size()) for tensor in tensors]


def make_known(blocks: Sequence[tuple[Any, int]]) -> None:
    """Have the memory that is given out next for these blocks hold no earlier result.

    A call that leaves a part of its result unwritten finds the same there whoever makes it.
    Nothing may be allocated between this and the call.
    """
    total = sum(size for _, size in blocks)
    copies = _KNOWN_BLOCKS if total * _KNOWN_BLOCKS <= _MOST_KNOWN_BYTES else 1
    if total * copies <= _MOST_KNOWN_BYTES:
        kept = [
            torch().empty(size, dtype=torch().uint8, device=device).fill_(KNOWN_BYTE)
            for device, size in blocks
            for _ in range(copies)
            if _may_be_held(device, size)
        ]
        del kept


def _may_be_held(device: Any, size: int) -> bool:
    """Whether so many bytes may be taken and given back: they were freed, or there is plenty."""
    if device.type != "cuda":
        return True
    cuda = torch().cuda
    if cuda.memory_reserved(device) - cuda.memory_allocated(device) >= size:
        return True
    return bool(cuda.mem_get_info(device)[0] >= _PART_OF_THE_FREE * size)


def is_tensor(value: Any) -> bool:
    """Whether it is a tensor with memory of its own on a CPU or a GPU."""
    return isinstance(value, torch().Tensor) and value.device.type in ("cpu", "cuda")


def reachable(function: Callable[..., Any], but_of: str) -> dict[str, Any]:
    """Path -> tensor, of those that a callable has at hand before it is called.

    So are arrays of CuPy. NumPy's are left alone: few are inputs of a kernel, and many a table of
    the host's.

    Args:
        function: a lambda of a test, a partial, a bound method.
        but_of: name of the kernel's file. What its functions have at hand is the candidate's own.
    """
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for path, tensor in _walk("", function, but_of, seen, 0):
        is_of_numpy = is_fixed(tensor) and tensor.device.type == "cpu"
        if len(found) < MOST_TENSORS and not is_of_numpy:
            found.setdefault(path, tensor)
    return found


def within(value: Any, name: str) -> dict[str, Any]:
    """Path -> tensor, of those in a value: what a call returned, or its arguments. Arrays count."""
    return dict(_walk(name, value, "", set(), 0))


def _walk(
    path: str, value: Any, but_of: str, seen: set[int], depth: int
) -> Iterator[tuple[str, Any]]:
    if depth > _DEEPEST or id(value) in seen or value is None:
        return
    if isinstance(value, str | bytes | int | float | bool | type | types.ModuleType):
        return
    seen.add(id(value))
    if is_tensor(value):
        yield path, value
        return
    if library_of(value):
        if (tensor := as_tensor(value)) is not None:
            yield path, as_fixed(tensor)
        return
    for name, part in _parts(value, but_of):
        yield from _walk(f"{path}{name}", part, but_of, seen, depth + 1)


def _parts(value: Any, but_of: str) -> Iterator[tuple[str, Any]]:
    """What a value holds, by the means that tests use."""
    if isinstance(value, functools.partial):
        yield "()", value.func
        yield from _parts(value.args, but_of)
        yield from _parts(value.keywords, but_of)
    elif isinstance(value, Mapping):
        yield from ((f"[{key!r}]", part) for key, part in list(value.items()))
    elif isinstance(value, tuple | list):
        yield from ((f"[{index}]", part) for index, part in enumerate(value))
    elif isinstance(value, types.MethodType):
        yield ".self", value.__self__
        yield ".function", value.__func__
    elif isinstance(value, types.FunctionType):
        if os.path.basename(value.__code__.co_filename) != but_of:  # noqa: PTH119
            yield from _of_function(value)
    elif dataclasses.is_dataclass(value):
        names = (field.name for field in dataclasses.fields(value))
        yield from ((f".{name}", getattr(value, name, None)) for name in names)
    elif isinstance(value, torch().nn.Module):
        yield from ((f".{name}", tensor) for name, tensor in value.named_parameters())
        yield from ((f".{name}", tensor) for name, tensor in value.named_buffers())
    elif type(value).__module__ not in ("builtins", "torch") and hasattr(value, "__dict__"):
        yield from ((f".{name}", part) for name, part in sorted(vars(value).items()))


def _of_function(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=False):
        try:
            yield f" {name}", cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for index, value in enumerate(function.__defaults__ or ()):
        yield f" default {index}", value
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if not isinstance(value, type | types.ModuleType):
            yield f" {name}", value


def digest(tensor: Any) -> tuple[int, int]:
    """Two sums over a tensor's bytes: equal for equal bytes, and for hardly any others."""
    flat = _as_integers(tensor)
    total = weighted = 0
    for begin in range(0, flat.numel(), CHUNK):
        part = flat[begin : begin + CHUNK].to(torch().int64)
        places = torch().arange(part.numel(), device=part.device)
        total += int(part.sum())
        weighted += int((part * (places * 0x9E3779B1 % 0x7FFFFFFF + begin + 1)).sum())
    return total & 0xFFFFFFFFFFFFFFFF, weighted & 0xFFFFFFFFFFFFFFFF


def _as_integers(tensor: Any) -> Any:
    """The elements as integers, in the order of their indices."""
    flat = tensor.detach().contiguous().view(-1)
    if flat.is_complex():
        flat = torch().view_as_real(flat).reshape(-1)
    kinds = {1: torch().uint8, 2: torch().int16, 4: torch().int32, 8: torch().int64}
    return flat.view(kinds[flat.element_size()])


def overlap(one: Any, other: Any) -> bool:
    """Whether two tensors lie in the same memory, at least in part."""
    begins = [t.data_ptr() for t in (one, other)]
    ends = [begin + span_bytes(t) for begin, t in zip(begins, (one, other), strict=True)]
    return bool(one.device == other.device and begins[0] < ends[1] and begins[1] < ends[0])


def distinct_bytes(tensor: Any) -> int:
    """Of a tensor's elements; of those that share their memory by a stride of zero, one."""
    sizes = [n for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or not n]
    return int(math.prod(sizes) * tensor.element_size())


def span_bytes(tensor: Any) -> int:
    """From the first byte that a tensor uses to behind its last."""
    if not tensor.numel():
        return 0
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int((last + 1) * tensor.element_size())


def spoil(tensor: Any) -> None:
    """Have a result that lies ready be none: NaN, where the type has one of more than a byte."""
    if tensor.is_floating_point() and tensor.element_size() > 1:
        tensor.data.fill_(float("nan"))
