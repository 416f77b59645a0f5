"""Casts: `astype`, implicit ones, and those that keep the bits."""

from __future__ import annotations

from typing import Any

import torch

from tile_agent_pytest.tile_cpu import dtypes
from tile_agent_pytest.tile_cpu.hook import ct
from tile_agent_pytest.tile_cpu.tile import Tile, as_tile, constant_tile, is_constant

Rounding = ct.RoundingMode
HALVES = (ct.float16, ct.bfloat16)


def cast(x: Tile, dtype: Any, rounding_mode: Any = None) -> Tile:
    """`x` as `dtype`. Floats to integers truncate and saturate; a NaN becomes zero."""
    if x.dtype is dtype:
        return x
    if rounding_mode not in (None, Rounding.RN):
        return Tile(_round_directed(x.values, dtype, rounding_mode), dtype)
    values = x.values
    if x.dtype is ct.uint64 and not dtypes.is_integral(dtype):
        # Its carrier holds the bits; half of the value, doubled, has room for the sign.
        halved = ((values >> 1) & ((1 << 63) - 1)) | (values & 1)
        values = torch.where(values < 0, halved.double() * 2, values.double())
    if dtype is ct.bool_:
        return Tile(values != 0, dtype)
    if dtypes.is_integral(dtype) and dtypes.is_float(x.dtype):
        return Tile(_truncate(values, dtype), dtype)
    return Tile(dtypes.fit(values, dtype), dtype)


def _truncate(values: torch.Tensor, dtype: Any) -> torch.Tensor:
    low, high = dtypes.integer_range(dtype)
    exact = values.double().nan_to_num(0.0, float("inf"), float("-inf")).trunc()
    if dtype is ct.uint64:
        upper = _saturate(exact - 2.0**63, 0, (1 << 63) - 1)
        return torch.where(exact >= 2.0**63, upper + -(1 << 63), _saturate(exact, 0, (1 << 63) - 1))
    return _saturate(exact, low, high).to(dtypes.carrier(dtype))


def _saturate(exact: torch.Tensor, low: int, high: int) -> torch.Tensor:
    # fp64 has no 2**63 - 1: what reaches it is set apart.
    whole = exact.clamp(low, min(high, (1 << 63) - 1024)).to(torch.int64)
    return torch.where(exact >= high, high, whole)


def _round_directed(values: torch.Tensor, dtype: Any, mode: Any) -> torch.Tensor:
    exact = values.double()
    if dtype is ct.float8_e8m0fnu and mode in (Rounding.RZ, Rounding.RP):
        exponent = exact.log2().floor() if mode is Rounding.RZ else exact.log2().ceil()
        return torch.exp2(exponent.clamp(-127, 127)).float()
    if dtype not in (*HALVES, ct.float32) or mode not in (Rounding.RZ, Rounding.RM, Rounding.RP):
        raise ct.TileTypeError(f"rounding_mode {mode.name} is not supported for {dtype.name}")
    return round_toward(exact, dtype, mode)


def round_toward(exact: torch.Tensor, dtype: Any, mode: Any) -> torch.Tensor:
    """Exact fp64 values rounded toward zero (RZ), minus (RM) or plus infinity (RP)."""
    storage = dtypes.FLOATS[dtype]
    nearest = exact.to(storage)
    error = nearest.double() - exact
    down = {
        Rounding.RM: error > 0,
        Rounding.RZ: (error > 0) & (exact > 0),
        Rounding.RP: torch.zeros_like(error, dtype=torch.bool),
    }[mode]
    up = {
        Rounding.RP: error < 0,
        Rounding.RZ: (error < 0) & (exact < 0),
        Rounding.RM: torch.zeros_like(error, dtype=torch.bool),
    }[mode]
    bits = nearest.view(dtypes.INTS[dtype.bitwidth])
    # A float's bits are ordered like its magnitude: one less is the next value toward zero.
    step = torch.where(nearest > 0, 1, -1).to(bits.dtype)
    moved = torch.where(up, bits + step, torch.where(down, bits - step, bits))
    return moved.view(storage).to(dtypes.carrier(dtype))


def astype(x: Any, dtype: Any, /, *, rounding_mode: Any = None) -> Tile:
    target = dtypes.dtype_of(dtype)
    tile = as_tile(x)
    between_floats = dtypes.is_float(tile.dtype) and dtypes.is_float(target)
    if rounding_mode is not None and not between_floats:
        raise ct.TileTypeError("rounding_mode is only valid between floats")
    return cast(tile, target, rounding_mode)


def implicit_cast(x: Any, dtype: Any, what: str) -> Tile:
    """The cast that a store or a padding value takes: only to a dtype that holds the source."""
    if is_constant(x):
        own = dtypes.dtype_of_constant(x)
        fits = dtypes.category(own) <= dtypes.category(dtype)
        if dtype is ct.bool_:
            fits = not isinstance(x, float) and x in (0, 1)
        if not fits:
            raise ct.TileTypeError(f"{what}: cannot implicitly cast {x} to {dtype.name}")
        if dtypes.is_integral(dtype):
            low, high = dtypes.integer_range(dtype)
            if not low <= x <= high:
                raise ct.TileValueError(f"{what}: {x} is out of range of {dtype.name}")
        return constant_tile((), x, dtype)
    tile = as_tile(x)
    try:
        holds = dtypes.promote(tile.dtype, dtype) is dtype
    except ct.TileTypeError:
        holds = False
    if not holds:
        raise ct.TileTypeError(
            f"{what}: cannot implicitly cast {tile.dtype.name} to {dtype.name}; use astype"
        )
    return cast(tile, dtype)


def bitcast(x: Any, /, dtype: Any) -> Tile:
    tile, target = as_tile(x), dtypes.dtype_of(dtype)
    if ct.bool_ in (tile.dtype, target) or tile.dtype.bitwidth != target.bitwidth:
        raise ct.TileTypeError(f"cannot bitcast {tile.dtype.name} to {target.name}")
    if ct.tfloat32 in (tile.dtype, target):
        # Its bits are those of a float.
        middle = bitcast(tile, ct.float32) if tile.dtype is not ct.tfloat32 else tile
        return Tile(dtypes.fit(middle.values, target), target)
    return _from_bytes(_to_bytes(tile), target, tile.shape)


def _to_bytes(tile: Tile) -> torch.Tensor:
    if tile.dtype is ct.float4_e2m1fn:
        table = torch.tensor(dtypes.FP4_VALUES)
        values = tile.values.reshape(-1)
        codes = (values.abs().unsqueeze(-1) == table).float().argmax(-1)
        codes = codes | (values.signbit().long() << 3)
        return (codes[0::2] | (codes[1::2] << 4)).to(torch.uint8)
    return dtypes.to_memory(tile.values, tile.dtype).contiguous().reshape(-1).view(torch.uint8)


def _from_bytes(data: torch.Tensor, dtype: Any, shape: tuple[int, ...]) -> Tile:
    if dtype is ct.float4_e2m1fn:
        codes = torch.stack((data & 15, data >> 4), dim=-1).reshape(-1).long()
        values = torch.tensor(dtypes.FP4_VALUES)[codes & 7]
        return Tile(torch.where(codes >= 8, -values, values).reshape(shape), dtype)
    values = data.clone().view(dtypes.STORAGE[dtype])
    return Tile(dtypes.from_memory(values, dtype).reshape(shape), dtype)


def pack_to_bytes(x: Any, /) -> Tile:
    tile = as_tile(x)
    if tile.dtype in (ct.bool_, ct.tfloat32):
        raise ct.TileTypeError(f"pack_to_bytes does not take {tile.dtype.name}")
    data = _to_bytes(tile)
    return _from_bytes(data, ct.uint8, tuple(data.shape))


def unpack_from_bytes(x: Any, /, dtype: Any) -> Tile:
    tile, target = as_tile(x), dtypes.dtype_of(dtype)
    if tile.dtype is not ct.uint8 or tile.ndim != 1 or target in (ct.bool_, ct.tfloat32):
        raise ct.TileTypeError(f"unpack_from_bytes needs 1-D uint8, got {tile!r} to {target.name}")
    return _from_bytes(_to_bytes(tile), target, (tile.shape[0] * 8 // target.bitwidth,))


OPERATIONS = {
    "astype": astype,
    "bitcast": bitcast,
    "pack_to_bytes": pack_to_bytes,
    "unpack_from_bytes": unpack_from_bytes,
}
