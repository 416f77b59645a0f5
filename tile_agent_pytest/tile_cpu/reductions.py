"""Reductions and scans.

The order in which a GPU combines elements is not specified. Here it is a tree of halves, and every
step rounds to the tile's dtype, so that a sum in fp16 loses what it would lose there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from tile_agent_pytest.tile_cpu import dtypes
from tile_agent_pytest.tile_cpu.casts import cast, implicit_cast
from tile_agent_pytest.tile_cpu.elementwise import binary, compare
from tile_agent_pytest.tile_cpu.hook import ct
from tile_agent_pytest.tile_cpu.tile import (
    Tile,
    as_tile,
    axis_of,
    broadcast_shape,
    integers,
)

Tiles = tuple[Tile, ...]
Combine = Callable[[Tiles, Tiles], Tiles]


def _axes(axis: Any, ndim: int) -> list[int]:
    if axis is None:
        return list(range(ndim))
    axes = [axis_of(a, ndim) for a in integers(axis, "axis")]
    if len(set(axes)) != len(axes):
        raise ct.TileTypeError(f"repeated reduction axis in {axis}")
    return axes


def _fold(tiles: Tiles, axis: int, combine: Combine) -> Tiles:
    """Combine the two halves along `axis` until one element is left; keeps the axis."""
    while tiles[0].shape[axis] > 1:
        half = tiles[0].shape[axis] // 2
        low = tuple(Tile(t.values.narrow(axis, 0, half), t.dtype) for t in tiles)
        high = tuple(Tile(t.values.narrow(axis, half, half), t.dtype) for t in tiles)
        tiles = combine(low, high)
    return tiles


def _reduce(tiles: Tiles, axis: Any, keepdims: bool, combine: Combine) -> Tiles:
    axes = _axes(axis, tiles[0].ndim)
    for a in axes:
        tiles = _fold(tiles, a, combine)
    if keepdims:
        return tiles
    left = tuple(n for i, n in enumerate(tiles[0].shape) if i not in axes)
    return tuple(Tile(t.values.reshape(left), t.dtype) for t in tiles)


def _arithmetic(x: Any) -> Tile:
    tile = as_tile(x)
    if tile.dtype in dtypes.RESTRICTED:
        raise ct.TileTypeError(f"cannot reduce {tile.dtype.name}; cast it first")
    return cast(tile, ct.int32) if tile.dtype is ct.bool_ else tile


def reduce_with(
    name: str, x: Any, /, axis: Any = None, *, keepdims: bool = False, **options: Any
) -> Tile:
    """`sum`, `prod`, `max`, `min`."""
    tile = _arithmetic(x)
    fast = _fast_sum(name, tile, axis, keepdims, options)
    if fast is not None:
        return fast

    def combine(low: Tiles, high: Tiles) -> Tiles:
        return (binary(name, low[0], high[0], **options),)

    return _reduce((tile,), axis, keepdims, combine)[0]


def _fast_sum(
    name: str, tile: Tile, axis: Any, keepdims: bool, options: dict[str, Any]
) -> Tile | None:
    """torch's own sum where no step rounds to less than what it sums in."""
    if name != "add" or tile.dtype is not ct.float32 or any(options.values()):
        return None
    axes = _axes(axis, tile.ndim)
    return Tile(tile.values.sum(dim=axes, keepdim=keepdims) if axes else tile.values, tile.dtype)


def arg_extreme(
    name: str, x: Any, /, axis: Any = None, *, keepdims: bool = False, propagate_nan: bool = False
) -> Tile:
    """The smallest index of the largest (`gt`) or smallest (`lt`) value, as int32."""
    tile = _arithmetic(x)
    values, place = tile.values, 0
    if axis is None:
        values = values.reshape(-1)
    else:
        place = axis_of(axis, tile.ndim)
    shape = [1] * values.dim()
    shape[place] = -1
    index = torch.arange(values.shape[place], dtype=torch.int32).reshape(shape)

    def combine(low: Tiles, high: Tiles) -> Tiles:
        (a, i), (b, j) = low, high
        wins = compare(name, a, b).values
        same = (a.values == b.values) | (a.values.isnan() & b.values.isnan())
        if dtypes.is_float(a.dtype):
            better, worse = (a, b) if propagate_nan else (b, a)
            wins = wins | (better.values.isnan() & ~worse.values.isnan())
        first = wins | (same & (i.values < j.values))
        return (
            Tile(torch.where(first, a.values, b.values), a.dtype),
            Tile(torch.where(first, i.values, j.values), ct.int32),
        )

    pair = (Tile(values, tile.dtype), Tile(index.expand(values.shape), ct.int32))
    result = _reduce(pair, place, keepdims and axis is not None, combine)[1]
    if keepdims and axis is None:
        return Tile(result.values.reshape((1,) * tile.ndim), ct.int32)
    return result


def _user_combine(func: Callable[..., Any], several: bool) -> Combine:
    """The user's function, which is elementwise, on whole tiles instead of scalars."""

    def combine(low: Tiles, high: Tiles) -> Tiles:
        result = func(*low, *high)
        results = result if several else (result,)
        return tuple(
            implicit_cast(r, t.dtype, "the function of a reduction or scan")
            for r, t in zip(results, low, strict=True)
        )

    return combine


def _inputs(x: Any, identity: Any) -> tuple[Tiles, bool]:
    several = isinstance(x, tuple)
    tiles = tuple(as_tile(t) for t in (x if several else (x,)))
    if several and len(identity) != len(tiles):
        raise ct.TileTypeError(f"{len(tiles)} tiles need {len(tiles)} identities")
    shape = broadcast_shape(*(t.shape for t in tiles))
    return tuple(Tile(t.values.expand(shape), t.dtype) for t in tiles), several


def reduce(
    x: Any, /, axis: Any, func: Callable[..., Any], identity: Any, *, keepdims: bool = False
) -> Any:
    tiles, several = _inputs(x, identity)
    results = _reduce(tiles, axis, keepdims, _user_combine(func, several))
    return results if several else results[0]


def _scan(tiles: Tiles, axis: int, reverse: bool, combine: Combine) -> Tiles:
    """Inclusive prefixes by doubling: after step k an element covers its last 2**k."""
    if reverse:
        tiles = tuple(Tile(t.values.flip(axis), t.dtype) for t in tiles)
    length, step = tiles[0].shape[axis], 1
    while step < length:
        early = tuple(Tile(t.values.narrow(axis, 0, length - step), t.dtype) for t in tiles)
        late = tuple(Tile(t.values.narrow(axis, step, length - step), t.dtype) for t in tiles)
        tiles = tuple(
            Tile(torch.cat((old.values.narrow(axis, 0, step), new.values), dim=axis), old.dtype)
            for old, new in zip(tiles, combine(early, late), strict=True)
        )
        step *= 2
    if reverse:
        tiles = tuple(Tile(t.values.flip(axis), t.dtype) for t in tiles)
    return tiles


def scan(
    x: Any, /, axis: Any, func: Callable[..., Any], identity: Any, *, reverse: bool = False
) -> Any:
    tiles, several = _inputs(x, identity)
    place = axis_of(axis, tiles[0].ndim)
    results = _scan(tiles, place, reverse, _user_combine(func, several))
    return results if several else results[0]


def cumulate(name: str, x: Any, /, axis: Any = 0, *, reverse: bool = False, **options: Any) -> Tile:
    """`cumsum`, `cumprod`."""
    tile = _arithmetic(x)

    def combine(early: Tiles, late: Tiles) -> Tiles:
        return (binary(name, early[0], late[0], **options),)

    return _scan((tile,), axis_of(axis, tile.ndim), reverse, combine)[0]


OPERATIONS = {
    "sum": partial(reduce_with, "add"),
    "prod": partial(reduce_with, "mul"),
    "max": partial(reduce_with, "max"),
    "min": partial(reduce_with, "min"),
    "argmax": partial(arg_extreme, "gt"),
    "argmin": partial(arg_extreme, "lt"),
    "cumsum": partial(cumulate, "add"),
    "cumprod": partial(cumulate, "mul"),
    "reduce": reduce,
    "scan": scan,
}
