"""Elementwise functions of one tile."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from tile_agent_pytest.tile_cpu import dtypes
from tile_agent_pytest.tile_cpu.casts import cast
from tile_agent_pytest.tile_cpu.elementwise import flush
from tile_agent_pytest.tile_cpu.hook import ct
from tile_agent_pytest.tile_cpu.tile import Tile, as_tile, is_constant

FLOAT_FUNCTIONS: dict[str, tuple[Callable[..., torch.Tensor], Callable[[float], float]]] = {
    "exp": (torch.exp, math.exp),
    "exp2": (torch.exp2, lambda x: 2.0**x),
    "log": (torch.log, math.log),
    "log2": (torch.log2, math.log2),
    "sin": (torch.sin, math.sin),
    "cos": (torch.cos, math.cos),
    "tan": (torch.tan, math.tan),
    "sinh": (torch.sinh, math.sinh),
    "cosh": (torch.cosh, math.cosh),
    "tanh": (torch.tanh, math.tanh),
    "sqrt": (torch.sqrt, math.sqrt),
    "rsqrt": (torch.rsqrt, lambda x: x**-0.5),
}
"""By name: for tiles, and for Python constants. Integers are cast to fp32 first."""


def float_function(
    name: str, x: Any, /, *, rounding_mode: Any = None, flush_to_zero: bool = False
) -> Any:
    """Correctly rounded, or nearly: an approximate rounding mode computes the same here."""
    on_tiles, on_constants = FLOAT_FUNCTIONS[name]
    if is_constant(x):
        return on_constants(x)
    tile = as_tile(x)
    if not dtypes.is_float(tile.dtype):
        tile = cast(tile, ct.float32)
    if rounding_mode in (ct.RoundingMode.APPROX, ct.RoundingMode.FULL):
        _only_float32(f"rounding_mode {rounding_mode.name}", tile)
    if flush_to_zero:
        _only_float32("flush_to_zero", tile)
        return Tile(flush(on_tiles(flush(tile.values))), tile.dtype)
    return Tile(dtypes.fit(on_tiles(tile.values), tile.dtype), tile.dtype)


def _only_float32(what: str, tile: Tile) -> None:
    if tile.dtype is not ct.float32:
        raise ct.TileTypeError(f"{what} can only be used for float32, got {tile.dtype.name}")


def round_to_integer(name: str, x: Any, /) -> Any:
    if is_constant(x):
        return getattr(math, name)(x)
    tile = as_tile(x)
    if not dtypes.is_float(tile.dtype):
        raise ct.TileTypeError(f"{name} needs a float, got {tile.dtype.name}")
    return Tile(getattr(torch, name)(tile.values), tile.dtype)


def negative(x: Any, /) -> Any:
    if is_constant(x):
        return -x
    tile = cast(x, ct.int32) if x.dtype is ct.bool_ else x
    return Tile(dtypes.fit(-tile.values, tile.dtype), tile.dtype)


def positive(x: Tile) -> Tile:
    return cast(x, ct.int32) if x.dtype is ct.bool_ else x


def absolute(x: Any, /) -> Any:
    if is_constant(x):
        return abs(x)
    if x.dtype is ct.bool_ or x.dtype in dtypes.UNSIGNED:
        return x
    return Tile(x.values.abs(), x.dtype)


def bitwise_not(x: Any, /) -> Any:
    if is_constant(x):
        return not x if isinstance(x, bool) else operator.invert(x)
    if dtypes.is_float(x.dtype):
        raise ct.TileTypeError("bitwise operations need integers or booleans; bitcast floats")
    return Tile(dtypes.fit(~x.values, x.dtype), x.dtype)


def isnan(x: Any, /) -> Any:
    return math.isnan(x) if is_constant(x) else Tile(x.values.isnan(), ct.bool_)


Tile.__neg__ = negative
Tile.__pos__ = positive
Tile.__abs__ = absolute
Tile.__invert__ = bitwise_not

OPERATIONS = {
    **{name: partial(float_function, name) for name in FLOAT_FUNCTIONS},
    "floor": partial(round_to_integer, "floor"),
    "ceil": partial(round_to_integer, "ceil"),
    "negative": negative,
    "abs": absolute,
    "bitwise_not": bitwise_not,
    "isnan": isnan,
}
