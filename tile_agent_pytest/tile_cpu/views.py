"""Slices and tiled views of arrays, and the indexing that gathers whole slices."""

from __future__ import annotations

from typing import Any

import torch

from tile_agent_pytest.tile_cpu import dtypes, memory
from tile_agent_pytest.tile_cpu.casts import implicit_cast
from tile_agent_pytest.tile_cpu.errors import UndefinedAccess
from tile_agent_pytest.tile_cpu.hook import ct
from tile_agent_pytest.tile_cpu.memory import Array
from tile_agent_pytest.tile_cpu.tile import (
    Tile,
    as_tile,
    axis_of,
    broadcast_shape,
    integer,
    integers,
    scalar,
    tile_shape,
)


def slice_array(array: Array, axis: Any, start: Any, stop: Any) -> Array:
    place = axis_of(axis, array.ndim)
    first, last = start.__index__(), stop.__index__()
    extent = array.tensor.shape[place]
    if not 0 <= first <= last <= extent:
        raise UndefinedAccess(f"slice {first} to {last} of dimension #{place}, which has {extent}")
    return array.like(array.tensor.narrow(place, first, last - first))


class TiledView(ct.TiledView):  # type: ignore[misc]
    """An array cut into tiles of one shape, `steps` elements from one to the next."""

    def __init__(
        self, array: Array, shape: tuple[int, ...], steps: tuple[int, ...], padding_mode: Any
    ) -> None:
        self.array, self._shape, self._steps = array, shape, steps
        self.padding_mode = padding_mode

    @property
    def dtype(self) -> Any:
        return self.array.dtype

    @property
    def tile_shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def traversal_steps(self) -> tuple[int, ...]:
        return self._steps


def tiled_view(
    array: Array,
    tile_shape: Any,
    *,
    padding_mode: Any = ct.PaddingMode.UNDETERMINED,
    traversal_steps: Any = None,
) -> TiledView:
    shape = _tile_shape(tile_shape)
    full = shape or (1,) * array.ndim
    steps = full if traversal_steps is None else integers(traversal_steps, "traversal_steps")
    if not len(full) == len(steps) == array.ndim:
        raise ct.TileTypeError(f"an array of rank {array.ndim} needs a tile shape of that rank")
    return TiledView(array, shape, steps, padding_mode)


_tile_shape = tile_shape


def view_num_tiles(view: TiledView, axis: Any) -> Tile:
    place = axis_of(axis, view.array.ndim)
    extent, step = view.array.tensor.shape[place], view.traversal_steps[place]
    return scalar(-(-extent // step), ct.int32)


def view_load(
    view: TiledView,
    index: Any,
    *,
    check_bounds: bool = True,
) -> Tile:
    return memory.read_tile(
        view.array,
        view.array.tensor,
        index,
        view.tile_shape,
        view.traversal_steps,
        view.padding_mode,
        check_bounds,
    )


def view_store(
    view: TiledView,
    index: Any,
    tile: Any,
    *,
    check_bounds: bool = True,
) -> None:
    value = implicit_cast(tile, view.dtype, "stored tile")
    spread = Tile(memory.expand(value, view.tile_shape, "stored tile"), view.dtype)
    memory.write_tile(
        view.array, view.array.tensor, index, spread, view.traversal_steps, check_bounds
    )


def view_indices(view: TiledView, index: Any) -> tuple[Tile, ...]:
    """The element indices, one tile an axis, of the tile at `index`."""
    items = index if isinstance(index, tuple) else (index,)
    shape = view.tile_shape or (1,) * view.array.ndim
    indices = []
    for axis, (item, size, step) in enumerate(zip(items, shape, view.traversal_steps, strict=True)):
        along = [1] * len(shape)
        along[axis] = size
        places = torch.arange(size, dtype=torch.int64) + item.__index__() * step
        indices.append(Tile(places.reshape(along), ct.int64))
    return tuple(indices)


# --- indexing that gathers slices ----------------------------------------------------------------


def init_slice(index: Any, start: Any, length: Any, /) -> None:
    index.start, index.length = start, length


def _advanced(array: Array, indices: Any) -> tuple[Tile, ...]:
    if not isinstance(indices, tuple) or len(indices) != array.ndim or array.ndim < 2:
        raise ct.TileTypeError("advanced indexing needs one index a dimension, of two or more")
    sparse = sum(isinstance(index, Tile) for index in indices)
    if sparse != 1:
        raise ct.TileTypeError(f"exactly one index must be a 1-D integer tile, found {sparse}")
    tiles = []
    for axis, index in enumerate(indices):
        if isinstance(index, Tile):
            if index.ndim != 1 or not dtypes.is_integral(index.dtype):
                raise ct.TileTypeError(f"index #{axis} must be a 1-D integer tile, got {index!r}")
            places = index.values.to(torch.int64)
        elif isinstance(index, ct.Slice):
            [size] = tile_shape(integer(index.length, "length of a Slice"), "Slice")
            places = torch.arange(size) + index.start.__index__()
        else:
            raise ct.TileTypeError(f"index #{axis} must be a 1-D integer tile or a Slice")
        along = [1] * array.ndim
        along[axis] = -1
        tiles.append(Tile(places.reshape(along), ct.int64))
    return tuple(tiles)


def load_advanced_indexing(
    array: Array,
    indices: Any,
    /,
    *,
    padding_mode: Any = ct.PaddingMode.UNDETERMINED,
) -> Tile:
    padding = memory.pad_value(padding_mode, array.dtype)
    return memory.gather(array, _advanced(array, indices), padding_value=padding)


def store_advanced_indexing(array: Array, indices: Any, tile: Any, /) -> None:
    places = _advanced(array, indices)
    shape = broadcast_shape(*(place.shape for place in places))
    value = as_tile(tile)
    if value.shape != shape:
        raise ct.TileTypeError(f"a tile of shape {value.shape} for indices of shape {shape}")
    memory.scatter(array, places, value)


OPERATIONS = {
    "Array.slice": slice_array,
    "Array.tiled_view": tiled_view,
    "TiledView.num_tiles": view_num_tiles,
    "TiledView.load": view_load,
    "TiledView.store": view_store,
    "Slice.__init__": init_slice,
    "load_advanced_indexing": load_advanced_indexing,
    "store_advanced_indexing": store_advanced_indexing,
}
