"""Global arrays as kernels see them: tiles in and out, gather and scatter, views."""

from __future__ import annotations

import math
from typing import Any

import torch

from tile_agent_pytest.tile_cpu import dtypes
from tile_agent_pytest.tile_cpu.casts import implicit_cast
from tile_agent_pytest.tile_cpu.errors import UndefinedAccess, UninitializedRead
from tile_agent_pytest.tile_cpu.hook import ct
from tile_agent_pytest.tile_cpu.tile import (
    Tile,
    as_tile,
    axis_of,
    broadcast_shape,
    integers,
    scalar,
    tile_shape,
)

PADDINGS = {
    ct.PaddingMode.ZERO: 0.0,
    ct.PaddingMode.NEG_ZERO: -0.0,
    ct.PaddingMode.NAN: math.nan,
    ct.PaddingMode.POS_INF: math.inf,
    ct.PaddingMode.NEG_INF: -math.inf,
}


HINTS = ("latency", "allow_tma", "memory_order", "memory_scope")
"""Keywords that change no result where blocks run one after another."""


def check_hints(hints: dict[str, Any]) -> None:
    unknown = hints.keys() - set(HINTS)
    if unknown:
        raise TypeError(f"unexpected keyword argument {min(unknown)!r}")
    latency = hints.get("latency")
    if latency is not None and not 1 <= latency <= 10:
        raise ct.TileValueError(f"latency must be between 1 and 10, got {latency}")


class Array(ct.Array):  # type: ignore[misc]
    """A torch tensor as a kernel's parameter. `slice`, `tiled_view`, ... come through the hook."""

    def __init__(
        self,
        tensor: torch.Tensor,
        *,
        index_dtype: Any = ct.int32,
        static_shape: tuple[int, ...] = (),
        static_strides: tuple[int, ...] = (),
        report_unwritten: bool = True,
    ) -> None:
        """`static_...`: the dimensions whose extent or stride is a constant in the kernel."""
        self.tensor = tensor.detach()
        self.report_unwritten = report_unwritten
        self._dtype = dtypes.dtype_of(tensor.dtype)
        self._index_dtype = index_dtype
        self._static_shape, self._static_strides = static_shape, static_strides

    @property
    def dtype(self) -> Any:
        return self._dtype

    @property
    def ndim(self) -> int:
        return int(self.tensor.dim())

    @property
    def shape(self) -> tuple[Any, ...]:
        return self._extents(tuple(self.tensor.shape), self._static_shape)

    @property
    def strides(self) -> tuple[Any, ...]:
        return self._extents(self.tensor.stride(), self._static_strides)

    def _extents(self, values: tuple[int, ...], static: tuple[int, ...]) -> tuple[Any, ...]:
        constant = {axis % self.ndim for axis in static}
        return tuple(
            value if axis in constant else scalar(value, self._index_dtype)
            for axis, value in enumerate(values)
        )

    def like(self, tensor: torch.Tensor) -> Array:
        """Another view of the same memory."""
        return Array(tensor, index_dtype=self._index_dtype, report_unwritten=self.report_unwritten)

    def __getitem__(self, key: Any) -> Any:
        raise ct.TileTypeError("an array cannot be subscripted; use load or gather")

    def __setitem__(self, key: Any, value: Any) -> None:
        raise ct.TileTypeError("an array cannot be assigned to; use store or scatter")

    def __repr__(self) -> str:
        return f"<array[{self._dtype.name}, {tuple(self.tensor.shape)}]>"


class Memory:
    """The elements from an array's first on, by their distance from it."""

    def __init__(self, array: Array, *, to_end_of_storage: bool = False) -> None:
        tensor, self.dtype, self._report = array.tensor, array.dtype, array.report_unwritten
        if to_end_of_storage:
            size = tensor.untyped_storage().nbytes() // tensor.element_size()
            self.size = size - tensor.storage_offset()
        elif tensor.numel():
            self.size = 1 + sum(
                (n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True)
            )
        else:
            self.size = 0
        self._storage = tensor.dtype
        self._elements = dtypes.movable(tensor).as_strided((self.size,), (1,))

    def read(self, offsets: torch.Tensor) -> torch.Tensor:
        """Carrier values at 1-D `offsets`."""
        values = self._elements[offsets].view(self._storage)
        _check_written(values, self._report)
        return dtypes.from_memory(values, self.dtype)

    def write(self, offsets: torch.Tensor, values: torch.Tensor) -> None:
        self._elements[offsets] = dtypes.movable(dtypes.to_memory(values, self.dtype).contiguous())


def _check_written(values: torch.Tensor, report: bool) -> None:
    if report and values.dtype in dtypes.UNWRITTEN:
        count = int(dtypes.is_unwritten(values).sum())
        if count:
            raise UninitializedRead(f"reads {count} elements that nobody has written")


# --- tiles ---------------------------------------------------------------------------------------


def _ordered(array: Array, order: Any) -> torch.Tensor:
    """The array with the axes of its tile space in the order that `order` gives."""
    if order == "C":
        return array.tensor
    ndim = array.ndim
    axes = tuple(reversed(range(ndim))) if order == "F" else integers(order, "order")
    axes = tuple(axis_of(axis, ndim) for axis in axes)
    if sorted(axes) != list(range(ndim)):
        raise ct.TileTypeError(f"order {order} is no permutation of {ndim} axes")
    return array.tensor.permute(axes)


def _region(
    view: torch.Tensor,
    index: Any,
    shape: tuple[int, ...],
    steps: tuple[int, ...],
    check_bounds: bool,
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Where the tile at `index` lies in the array, and where that part lies in the tile."""
    items = index if isinstance(index, tuple) else (index,)
    if not len(items) == len(shape) == view.dim():
        raise ct.TileTypeError(
            f"index of {len(items)} and tile of {len(shape)} dimensions for an array of rank"
            f" {view.dim()}"
        )
    in_array, in_tile = [], []
    for axis, (item, size, step) in enumerate(zip(items, shape, steps, strict=True)):
        start, extent = item.__index__() * step, view.shape[axis]
        low, high = max(start, 0), min(start + size, extent)
        if not check_bounds and (low, high) != (start, start + size):
            raise UndefinedAccess(
                f"check_bounds=False, but the tile covers {start} to {start + size - 1} of"
                f" dimension #{axis}, which has {extent}"
            )
        low = min(low, extent)
        high = max(high, low)
        in_array.append(slice(low, high))
        in_tile.append(slice(low - start, high - start))
    return tuple(in_array), tuple(in_tile)


def pad_value(mode: Any, dtype: Any) -> float | int:
    if mode is ct.PaddingMode.UNDETERMINED:
        return dtypes.undetermined(dtype)
    value = PADDINGS[mode]
    if not dtypes.is_float(dtype):
        if value:
            raise ct.TileTypeError(f"padding {mode.name} needs floats, the array has {dtype.name}")
        return 0
    return value


def read_tile(
    array: Array,
    view: torch.Tensor,
    index: Any,
    shape: tuple[int, ...],
    steps: tuple[int, ...],
    padding_mode: Any,
    check_bounds: bool,
) -> Tile:
    """A tile with `shape`; where it leaves the array, padding."""
    full = shape or (1,) * view.dim()
    in_array, in_tile = _region(view, index, full, steps or full, check_bounds)
    part = view[in_array]
    _check_written(part, array.report_unwritten)
    values = dtypes.from_memory(part, array.dtype)
    if tuple(part.shape) != full:
        padded = torch.full(
            full, pad_value(padding_mode, array.dtype), dtype=dtypes.carrier(array.dtype)
        )
        padded[in_tile] = values
        values = padded
    # A tile is a value: it must not change when the memory does.
    copied = values.clone() if values.data_ptr() == part.data_ptr() else values
    return Tile(copied.reshape(shape), array.dtype)


def write_tile(
    array: Array,
    view: torch.Tensor,
    index: Any,
    tile: Tile,
    steps: tuple[int, ...],
    check_bounds: bool,
) -> None:
    shape = tile.shape or (1,) * view.dim()
    in_array, in_tile = _region(view, index, shape, steps or shape, check_bounds)
    values = dtypes.to_memory(tile.values.reshape(shape)[in_tile], array.dtype)
    dtypes.movable(view)[in_array].copy_(dtypes.movable(values))


def load(
    array: Array,
    /,
    index: Any,
    shape: Any,
    *,
    order: Any = "C",
    padding_mode: Any = ct.PaddingMode.UNDETERMINED,
    check_bounds: bool = True,
) -> Tile:
    size = tile_shape(shape)
    return read_tile(array, _ordered(array, order), index, size, (), padding_mode, check_bounds)


def store(
    array: Array,
    /,
    index: Any,
    tile: Any,
    *,
    order: Any = "C",
    check_bounds: bool = True,
) -> None:
    value = implicit_cast(tile, array.dtype, "stored tile")
    write_tile(array, _ordered(array, order), index, value, (), check_bounds)


def num_tiles(array: Array, /, axis: Any, shape: Any, order: Any = "C") -> Tile:
    size = tile_shape(shape) or (1,) * array.ndim
    place = axis_of(axis, array.ndim)
    return scalar(-(-_ordered(array, order).shape[place] // size[place]), ct.int32)


# --- single elements -----------------------------------------------------------------------------


def addresses(
    array: Array, indices: Any, check_bounds: bool, mask: Any = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Distance of every indexed element from the array's first, and which of them to access."""
    items = indices if isinstance(indices, tuple) else (indices,)
    if len(items) != array.ndim:
        raise ct.TileTypeError(f"an array of rank {array.ndim} needs as many indices")
    tiles = [as_tile(item) for item in items]
    shape = broadcast_shape(*(t.shape for t in tiles))
    chosen = _mask(mask, shape)
    offset = torch.zeros(shape, dtype=torch.int64)
    for axis, tile in enumerate(tiles):
        if not dtypes.is_integral(tile.dtype):
            raise ct.TileTypeError(f"index #{axis} must be an integer, got {tile.dtype.name}")
        places = tile.values.to(torch.int64).expand(shape)
        extent = array.tensor.shape[axis]
        inside = (places >= 0) & (places < extent)
        if check_bounds:
            chosen = chosen & inside
        elif bool((chosen & ~inside).any()):
            wrong = int(places[chosen & ~inside][0])
            raise UndefinedAccess(
                f"check_bounds=False, but index {wrong} of dimension #{axis}, which has {extent}"
            )
        offset = offset + places * array.tensor.stride(axis)
    return offset, chosen


def _mask(mask: Any, shape: tuple[int, ...]) -> torch.Tensor:
    if mask is None:
        return torch.ones(shape, dtype=torch.bool)
    tile = as_tile(mask)
    if tile.dtype is not ct.bool_:
        raise ct.TileTypeError(f"a mask must be boolean, got {tile.dtype.name}")
    return expand(tile, shape, "mask")


def expand(tile: Tile, shape: tuple[int, ...], what: str) -> torch.Tensor:
    try:
        return tile.values.expand(shape)
    except RuntimeError:
        raise ct.TileTypeError(
            f"{what} of shape {tile.shape} is not broadcastable to the indices' shape {shape}"
        ) from None


def gather(
    array: Array,
    indices: Any,
    /,
    *,
    mask: Any = None,
    padding_value: Any = 0,
    check_bounds: bool = True,
) -> Tile:
    offset, chosen = addresses(array, indices, check_bounds, mask)
    return _gather(Memory(array), offset, chosen, padding_value)


def _gather(memory: Memory, offset: torch.Tensor, chosen: torch.Tensor, padding: Any) -> Tile:
    value = implicit_cast(padding, memory.dtype, "padding value")
    result = expand(value, tuple(offset.shape), "padding value").clone()
    result[chosen] = memory.read(offset[chosen])
    return Tile(result, memory.dtype)


def scatter(
    array: Array,
    indices: Any,
    value: Any,
    /,
    *,
    mask: Any = None,
    check_bounds: bool = True,
) -> None:
    offset, chosen = addresses(array, indices, check_bounds, mask)
    _scatter(Memory(array), offset, chosen, value)


def _scatter(memory: Memory, offset: torch.Tensor, chosen: torch.Tensor, value: Any) -> None:
    tile = implicit_cast(value, memory.dtype, "stored value")
    values = expand(tile, tuple(offset.shape), "stored value")
    memory.write(offset[chosen], values[chosen])


class RawArrayMemory:
    """The memory from an array's first element to the end of its allocation; its atomics are set in
    `atomics.py`. cuda.tile does not export its own class, so nothing is inherited."""

    def __init__(self, array: Array) -> None:
        self.memory = Memory(array, to_end_of_storage=True)

    @property
    def dtype(self) -> Any:
        return self.memory.dtype

    def addresses(self, offset: Any, mask: Any) -> tuple[torch.Tensor, torch.Tensor]:
        places = as_tile(offset).values.to(torch.int64)
        chosen = _mask(mask, tuple(places.shape))
        outside = chosen & ((places < 0) | (places >= self.memory.size))
        if bool(outside.any()):
            raise UndefinedAccess(
                f"offset {int(places[outside][0])} of {self.memory.size} elements"
            )
        return places, chosen

    def load_offset(
        self, offset: Any, /, *, mask: Any = None, padding_value: Any = 0, **hints: Any
    ) -> Tile:
        check_hints(hints)
        places, chosen = self.addresses(offset, mask)
        return _gather(self.memory, places, chosen, 0 if padding_value is None else padding_value)

    def store_offset(self, offset: Any, value: Any, /, *, mask: Any = None, **hints: Any) -> None:
        check_hints(hints)
        places, chosen = self.addresses(offset, mask)
        _scatter(self.memory, places, chosen, value)


OPERATIONS = {
    "load": load,
    "store": store,
    "num_tiles": num_tiles,
    "gather": gather,
    "scatter": scatter,
    "Array.get_raw_memory": RawArrayMemory,
}
