"""Matrix products: halves, tf32 and fp8 multiply exactly and accumulate in fp32."""

from __future__ import annotations

from typing import Any

import torch

from tile_agent_pytest.tile_cpu import dtypes
from tile_agent_pytest.tile_cpu.casts import cast
from tile_agent_pytest.tile_cpu.hook import ct
from tile_agent_pytest.tile_cpu.tile import Tile, as_tile

BYTES = (ct.int8, ct.uint8)
ACCUMULATORS = {
    ct.float8_e4m3fn: (ct.float16, ct.float32),
    ct.float8_e5m2: (ct.float16, ct.float32),
    ct.float16: (ct.float16, ct.float32),
    ct.bfloat16: (ct.float32,),
    ct.float32: (ct.float32,),
    ct.tfloat32: (ct.float32,),
    ct.float64: (ct.float64,),
    ct.int8: (ct.int32,),
    ct.uint8: (ct.int32,),
}
"""By dtype of the operands; the first is what `matmul` accumulates in."""

SCALES: dict[Any, dict[Any, tuple[int, ...]]] = {
    ct.float8_e4m3fn: {ct.float8_e8m0fnu: (32,)},
    ct.float8_e5m2: {ct.float8_e8m0fnu: (32,)},
    ct.float4_e2m1fn: {ct.float8_e8m0fnu: (16, 32), ct.float8_e4m3fn: (16,)},
}
"""By dtype of the operands and of their scales: how many elements of K one scale may serve."""


def _check(x: Tile, y: Tile, acc_dtype: Any) -> None:
    mixed_bytes = x.dtype in BYTES and y.dtype in BYTES
    if x.dtype is not y.dtype and not mixed_bytes:
        raise ct.TileTypeError(f"x and y must have one dtype, got {x.dtype.name}, {y.dtype.name}")
    allowed = ACCUMULATORS.get(x.dtype, ())
    if acc_dtype not in allowed:
        names = " or ".join(dtype.name for dtype in allowed) or "nothing"
        raise ct.TileTypeError(f"{x.dtype.name} accumulates in {names}, not in {acc_dtype.name}")


def _multiply(a: torch.Tensor, b: torch.Tensor, acc: torch.Tensor, dtype: Any) -> torch.Tensor:
    if a.shape[-1] != b.shape[-2]:
        raise ct.TileTypeError(f"cannot multiply {tuple(a.shape)} by {tuple(b.shape)}")
    if dtype is ct.int32:
        # fp64 holds every sum of products of bytes exactly.
        product = torch.matmul(a.double(), b.double()).to(torch.int64)
        return (product + acc).to(torch.int32)
    return dtypes.fit(torch.matmul(a, b) + acc, dtype)


def mma(x: Any, y: Any, /, acc: Any, *, use_fast_acc: bool = False) -> Tile:
    a, b, c = as_tile(x), as_tile(y), as_tile(acc)
    if a.ndim < 2 or b.ndim < 2:
        raise ct.TileTypeError(f"mma needs 2-D or 3-D tiles, got {a.shape} and {b.shape}")
    _check(a, b, c.dtype)
    if use_fast_acc and a.dtype not in dtypes.FP8_MAX:
        raise ct.TileTypeError(f"use_fast_acc is only supported for fp8, got {a.dtype.name}")
    result = _multiply(a.values, b.values, c.values, c.dtype)
    if result.shape != c.values.shape:
        raise ct.TileTypeError(f"acc must have shape {tuple(result.shape)}, got {c.shape}")
    return Tile(result, c.dtype)


def matmul(x: Any, y: Any, /) -> Tile:
    a, b = as_tile(x), as_tile(y)
    common = dtypes.promote(a.dtype, b.dtype)
    if common not in ACCUMULATORS:
        raise ct.TileTypeError(f"matmul does not take {common.name}")
    accumulator = ACCUMULATORS[common][0]
    left, right = cast(a, common).values, cast(b, common).values
    if a.ndim == 1:
        left = left.unsqueeze(0)
    if b.ndim == 1:
        right = right.unsqueeze(-1)
    zero = torch.zeros((), dtype=dtypes.carrier(accumulator))
    product = _multiply(left, right, zero, accumulator)
    if a.ndim == 1:
        product = product.squeeze(-2)
    if b.ndim == 1:
        product = product.squeeze(-1)
    return cast(Tile(product, accumulator), common)


def mma_scaled(x: Any, x_scale: Any, y: Any, y_scale: Any, /, acc: Any) -> Tile:
    if x.dtype is not y.dtype or x_scale.dtype is not y_scale.dtype:
        raise ct.TileTypeError("x and y, and their scales, must have one dtype each")
    allowed = SCALES.get(x.dtype, {}).get(x_scale.dtype)
    if allowed is None or acc.dtype is not ct.float32:
        raise ct.TileTypeError(
            f"mma_scaled does not take {x.dtype.name} with scales of {x_scale.dtype.name}"
            f" and an accumulator of {acc.dtype.name}"
        )
    left = x.values * _spread(x, x_scale, -1, allowed)
    right = y.values * _spread(y, y_scale, -2, allowed)
    result = _multiply(left, right, acc.values, ct.float32)
    if result.shape != acc.values.shape:
        raise ct.TileTypeError(f"acc must have shape {tuple(result.shape)}, got {acc.shape}")
    return Tile(result, ct.float32)


def _spread(tile: Tile, scale: Tile, k_axis: int, allowed: tuple[int, ...]) -> torch.Tensor:
    """Each scale repeated over the elements of K that it serves."""
    size, rest = divmod(tile.shape[k_axis], scale.shape[k_axis])
    if rest or size not in allowed:
        raise ct.TileTypeError(f"one scale serves {size} elements of K; allowed: {allowed}")
    return scale.values.repeat_interleave(size, dim=k_axis)


Tile.__matmul__ = lambda self, other: matmul(self, other)
Tile.__rmatmul__ = lambda self, other: matmul(other, self)

OPERATIONS = {"mma": mma, "matmul": matmul, "mma_scaled": mma_scaled}
