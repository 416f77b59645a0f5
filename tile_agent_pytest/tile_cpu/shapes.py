"""Tiles from constants, and tiles of another shape."""

from __future__ import annotations

import math
from typing import Any

import torch

from tile_agent_pytest.tile_cpu import dtypes
from tile_agent_pytest.tile_cpu.casts import cast
from tile_agent_pytest.tile_cpu.elementwise import binary
from tile_agent_pytest.tile_cpu.errors import UndefinedAccess
from tile_agent_pytest.tile_cpu.hook import ct
from tile_agent_pytest.tile_cpu.tile import (
    Tile,
    as_tile,
    axis_of,
    constant_tile,
    integer,
    integers,
    is_constant,
    tile_shape,
)


def full(shape: Any, fill_value: Any, dtype: Any) -> Tile:
    size, target = tile_shape(shape), dtypes.dtype_of(dtype)
    if is_constant(fill_value):
        return constant_tile(size, fill_value, target)
    value = cast(as_tile(fill_value), target)
    if value.ndim:
        raise ct.TileTypeError(f"fill_value must be a scalar, got a tile of shape {value.shape}")
    return Tile(value.values.expand(size), target)


def zeros(shape: Any, dtype: Any) -> Tile:
    return full(shape, 0, dtype)


def ones(shape: Any, dtype: Any) -> Tile:
    return full(shape, 1, dtype)


def arange(size: Any, /, *, dtype: Any, start: Any = 0, step: Any = 1) -> Tile:
    [length] = tile_shape(integer(size, "size"), "size")
    target = dtypes.dtype_of(dtype)
    counted = Tile(torch.arange(length, dtype=torch.int64), ct.int64)
    tile = cast(counted, target)
    if not (is_constant(step) and step == 1):
        tile = binary("mul", tile, cast(as_tile(step), target))
    if not (is_constant(start) and start == 0):
        tile = binary("add", tile, cast(as_tile(start), target))
    return tile


def astile(value: Any, /, *, dtype: Any) -> Tile:
    target = dtypes.dtype_of(dtype)
    if isinstance(value, tuple):
        items = [astile(item, dtype=target).values for item in value]
        if len(items) & (len(items) - 1) or len({item.shape for item in items}) != 1:
            raise ct.TileTypeError("the tuples of astile must be even, their lengths powers of two")
        return Tile(torch.stack(items), target)
    return constant_tile((), value, target) if is_constant(value) else cast(value, target)


def reshape(x: Any, /, shape: Any) -> Tile:
    tile, wanted = as_tile(x), integers(shape, "shape")
    known = math.prod(size for size in wanted if size != -1)
    count = math.prod(tile.shape)
    if wanted.count(-1) > 1 or any(size < -1 for size in wanted) or not known or count % known:
        raise ct.TileTypeError(f"cannot reshape {tile.shape} to {wanted}")
    new = tuple(count // known if size == -1 else size for size in wanted)
    if math.prod(new) != count:
        raise ct.TileTypeError(f"cannot reshape {tile.shape} to {wanted}")
    return Tile(tile.values.reshape(tile_shape(new)), tile.dtype)


def broadcast_to(x: Any, /, shape: Any) -> Tile:
    tile, target = as_tile(x), tile_shape(shape)
    try:
        return Tile(tile.values.expand(target), tile.dtype)
    except RuntimeError:
        raise ct.TileTypeError(f"shape {tile.shape} is not broadcastable to {target}") from None


def expand_dims(x: Any, /, axis: Any) -> Tile:
    tile = as_tile(x)
    return Tile(tile.values.unsqueeze(axis_of(axis, tile.ndim + 1)), tile.dtype)


def subscript(tile: Tile, key: Any) -> Tile:
    """`tile[:, None]`: new axes only."""
    keys = key if isinstance(key, tuple) else (key,)
    if any(k is not None and k is not Ellipsis and k != slice(None) for k in keys):
        raise ct.TileTypeError("a tile takes `:`, `...` and `None` only; use extract or item")
    try:
        return Tile(tile.values[keys], tile.dtype)
    except IndexError:
        raise ct.TileTypeError(f"too many indices for a tile of shape {tile.shape}") from None


def permute(x: Any, /, axes: Any) -> Tile:
    tile = as_tile(x)
    order = [axis_of(axis, tile.ndim) for axis in integers(axes, "axes")]
    if sorted(order) != list(range(tile.ndim)):
        raise ct.TileTypeError(f"axes {axes} are no permutation of a tile of rank {tile.ndim}")
    return Tile(tile.values.permute(order), tile.dtype)


def transpose(x: Any, /, axis0: Any = None, axis1: Any = None) -> Tile:
    tile = as_tile(x)
    if (axis0 is None) != (axis1 is None) or tile.ndim < 2 or (axis0 is None and tile.ndim > 2):
        raise ct.TileTypeError(f"transpose needs both axes for a tile of rank {tile.ndim}")
    first, second = (0, 1) if axis0 is None else (axis0, axis1)
    return Tile(
        tile.values.transpose(axis_of(first, tile.ndim), axis_of(second, tile.ndim)), tile.dtype
    )


def cat(tiles: Any, /, axis: Any) -> Tile:
    if not 1 <= len(tiles) <= 2:
        raise ct.TileTypeError(f"cat() takes one or two tiles, got {len(tiles)}")
    first = tiles[0]
    place = axis_of(axis, first.ndim)
    for other in tiles[1:]:
        rest = [n for i, n in enumerate(other.shape) if i != place]
        if other.dtype is not first.dtype or rest != [
            n for i, n in enumerate(first.shape) if i != place
        ]:
            raise ct.TileTypeError(f"cannot concatenate {first!r} and {other!r} on axis {place}")
    joined = torch.cat([tile.values for tile in tiles], dim=place)
    tile_shape(tuple(joined.shape), "result shape")
    return Tile(joined, first.dtype)


def _corner(tile: Tile, index: Any, shape: tuple[int, ...]) -> tuple[slice, ...]:
    """Where the subtile at `index` of the grid of `shape` lies."""
    items = index if isinstance(index, tuple) else (index,)
    if not len(items) == len(shape) == tile.ndim:
        raise ct.TileTypeError(
            f"index {len(items)}, shape {len(shape)} and tile {tile.ndim} must have one rank"
        )
    where = []
    for axis, (item, part, size) in enumerate(zip(items, shape, tile.shape, strict=True)):
        place = item.__index__()
        if size % part:
            raise ct.TileTypeError(f"dimension #{axis}: {size} is not divisible by {part}")
        if not 0 <= place < size // part:
            raise UndefinedAccess(
                f"subtile {place} of dimension #{axis}: there are {size // part} of {part} elements"
            )
        where.append(slice(place * part, (place + 1) * part))
    return tuple(where)


def extract(x: Any, /, index: Any, shape: Any) -> Tile:
    tile, wanted = as_tile(x), tile_shape(shape)
    part = wanted or (1,) * tile.ndim
    return Tile(tile.values[_corner(tile, index, part)].reshape(wanted), tile.dtype)


def insert(x: Any, /, index: Any, value: Any) -> Tile:
    tile, part = as_tile(x), as_tile(value)
    if part.dtype is not tile.dtype:
        raise ct.TileTypeError(f"cannot insert {part.dtype.name} into {tile.dtype.name}")
    shape = part.shape or (1,) * tile.ndim
    result = tile.values.clone()
    result[_corner(tile, index, shape)] = part.values.reshape(shape)
    return Tile(result, tile.dtype)


def item(tile: Tile) -> Tile:
    return reshape(tile, ())


Tile.__getitem__ = subscript

OPERATIONS = {
    "full": full,
    "zeros": zeros,
    "ones": ones,
    "arange": arange,
    "astile": astile,
    "reshape": reshape,
    "broadcast_to": broadcast_to,
    "expand_dims": expand_dims,
    "permute": permute,
    "transpose": transpose,
    "cat": cat,
    "extract": extract,
    "insert": insert,
    "Tile.item": item,
}
