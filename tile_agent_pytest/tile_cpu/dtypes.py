"""Data types: how values are held, rounded, promoted and poisoned.

A tile's values are *carried* in a torch dtype that the CPU computes with and that holds every value
of the tile's dtype: fp16, bf16, tf32, fp8 and fp4 in fp32, unsigned integers in int64 (uint64 as
its bits). `fit` brings the result of an operation back to the values the dtype has.
"""

from __future__ import annotations

from typing import Any

import torch

from tile_agent_pytest.tile_cpu.hook import ct

SIGNED = {ct.int8: torch.int8, ct.int16: torch.int16, ct.int32: torch.int32, ct.int64: torch.int64}
UNSIGNED = {
    ct.uint8: torch.uint8,
    ct.uint16: torch.uint16,
    ct.uint32: torch.uint32,
    ct.uint64: torch.uint64,
}
FLOATS = {
    ct.float16: torch.float16,
    ct.bfloat16: torch.bfloat16,
    ct.float32: torch.float32,
    ct.float64: torch.float64,
}
RESTRICTED = {
    ct.float8_e4m3fn: torch.float8_e4m3fn,
    ct.float8_e5m2: torch.float8_e5m2,
    ct.float8_e8m0fnu: torch.float8_e8m0fnu,
    ct.tfloat32: None,
    ct.float4_e2m1fn: None,
}
"""Floats that only casts and mma take; two of them never lie in memory."""

STORAGE = {ct.bool_: torch.bool, **SIGNED, **UNSIGNED, **FLOATS, **RESTRICTED}
OF_TORCH = {storage: dtype for dtype, storage in STORAGE.items() if storage is not None}
INTS = {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}

FP8_MAX = {ct.float8_e4m3fn: 448.0, ct.float8_e5m2: 57344.0}
FP4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
TF32_DROPPED_BITS = 13

UNWRITTEN = {
    torch.float16: 0x7EAD,
    torch.bfloat16: 0x7FED,
    torch.float32: 0x7FC0DEAD,
    torch.float64: 0x7FF8DEADDEADDEAD,
    torch.int16: 0x5EAD,
    torch.uint16: 0x5EAD,
    torch.int32: 0x5EADDEAD,
    torch.uint32: 0x5EADDEAD,
    torch.int64: 0x5EADDEADDEADDEAD,
    torch.uint64: 0x5EADDEADDEADDEAD,
}
"""Bits that memory nobody wrote holds: NaNs that no arithmetic makes, integers nobody means. Types
of 8 bits have no value to spare, so reading them unwritten goes unseen."""


def dtype_of(value: Any) -> Any:
    """The cuda.tile dtype that a dtype argument names: cuda.tile's own, torch's or numpy's."""
    if value in STORAGE:
        return value
    if value in OF_TORCH:
        return OF_TORCH[value]
    if getattr(value, "__module__", "") == "numpy":
        native = getattr(ct, value.__name__, None)
        if native in STORAGE:
            return native
    raise ct.TileTypeError(f"expected a numeric dtype, got {value!r}")


def is_integral(dtype: Any) -> bool:
    return dtype in SIGNED or dtype in UNSIGNED


def is_float(dtype: Any) -> bool:
    return dtype in FLOATS or dtype in RESTRICTED


def category(dtype: Any) -> int:
    """0 boolean, 1 integer, 2 float: the stronger category wins over a Python constant."""
    return 0 if dtype is ct.bool_ else 1 if is_integral(dtype) else 2


def carrier(dtype: Any) -> torch.dtype:
    """The torch dtype that carries values of `dtype`."""
    if dtype is ct.bool_:
        return torch.bool
    if dtype in UNSIGNED:
        return torch.int64
    if dtype in SIGNED:
        return SIGNED[dtype]
    return torch.float64 if dtype is ct.float64 else torch.float32


def integer_range(dtype: Any) -> tuple[int, int]:
    bits = dtype.bitwidth
    return (0, (1 << bits) - 1) if dtype in UNSIGNED else (-(1 << bits - 1), (1 << bits - 1) - 1)


def dtype_of_constant(value: bool | int | float) -> Any:
    """The dtype a Python constant takes where nothing else decides."""
    if isinstance(value, bool):
        return ct.bool_
    if isinstance(value, int):
        for dtype in (ct.int32, ct.int64, ct.uint64):
            low, high = integer_range(dtype)
            if low <= value <= high:
                return dtype
        raise ct.TileValueError(f"constant {value} is out of range of every integer type")
    return ct.float32


def promote(a: Any, b: Any, force_float: bool = False) -> Any:
    """The common dtype of two tiles, by cuda.tile's table."""
    if a is b:
        common = a
    elif a in RESTRICTED or b in RESTRICTED:
        common = None
    elif category(a) != category(b):
        common = a if category(a) > category(b) else b
    elif is_float(a):
        common = None if {a, b} == {ct.float16, ct.bfloat16} else max(a, b, key=_bits)
    else:
        common = max(a, b, key=_bits) if (a in SIGNED) == (b in SIGNED) else None
    if common is None:
        raise ct.TileTypeError(
            f"{a.name} and {b.name} have no common dtype; cast one of them with astype"
        )
    return common if not force_float or is_float(common) else ct.float32


def _bits(dtype: Any) -> int:
    bits: int = dtype.bitwidth
    return bits


def promote_with_constant(dtype: Any, value: bool | int | float, force_float: bool = False) -> Any:
    """The common dtype of a tile and a Python constant: the constant adapts within its category."""
    own = dtype_of_constant(value)
    if category(own) == category(dtype):
        if is_integral(dtype) and not force_float:
            low, high = integer_range(dtype)
            if not low <= value <= high:
                raise ct.TileValueError(f"constant {value} is out of range of {dtype.name}")
        common = dtype
    else:
        common = own if category(own) > category(dtype) else dtype
    return common if not force_float or is_float(common) else ct.float32


def fit(values: torch.Tensor, dtype: Any) -> torch.Tensor:
    """Round (to nearest, ties to even) or wrap to the values of `dtype`; returns its carrier."""
    if dtype in (ct.float16, ct.bfloat16):
        return values.to(FLOATS[dtype]).to(torch.float32)
    if dtype in UNSIGNED and dtype is not ct.uint64:
        return values.to(torch.int64) & ((1 << dtype.bitwidth) - 1)
    if dtype is ct.tfloat32:
        return _round_to_tf32(values.to(torch.float32))
    if dtype in FP8_MAX:
        # The conversion instruction saturates, torch's goes to infinity or NaN.
        limit = FP8_MAX[dtype]
        return values.clamp(-limit, limit).to(RESTRICTED[dtype]).to(torch.float32)
    if dtype is ct.float4_e2m1fn:
        return _round_to_fp4(values.to(torch.float32))
    if dtype is ct.float8_e8m0fnu:
        raise ct.TileTypeError("a cast to float8_e8m0fnu needs rounding_mode RZ or RP")
    return values.to(carrier(dtype))


def _round_to_tf32(values: torch.Tensor) -> torch.Tensor:
    bits = values.contiguous().view(torch.int32)
    odd = (bits >> TF32_DROPPED_BITS) & 1
    rounded = (bits + (1 << TF32_DROPPED_BITS - 1) - 1 + odd) & -(1 << TF32_DROPPED_BITS)
    return torch.where(values.isfinite(), rounded.view(torch.float32), values)


def _round_to_fp4(values: torch.Tensor) -> torch.Tensor:
    table = torch.tensor(FP4_VALUES)
    distance = (values.abs().unsqueeze(-1) - table).abs()
    # Of two that are equally near, the one with the even mantissa bit: an even place in the table.
    distance[..., 1::2] *= 1 + 2**-20
    return torch.copysign(table[distance.argmin(-1)], values)


def from_memory(values: torch.Tensor, dtype: Any) -> torch.Tensor:
    """Values as they lie in memory -> carrier."""
    if dtype is ct.uint64:
        return values.view(torch.int64)
    return values.to(carrier(dtype))


def to_memory(values: torch.Tensor, dtype: Any) -> torch.Tensor:
    """Carrier -> values as they lie in memory."""
    storage = STORAGE[dtype]
    if storage is None:
        raise ct.TileTypeError(f"{dtype.name} cannot be stored; cast to another dtype")
    if dtype is ct.uint64:
        return values.contiguous().view(torch.uint64)
    return values.to(storage)


def movable(values: torch.Tensor) -> torch.Tensor:
    """The same memory under a dtype that torch can index and copy: unsigned and fp8 it cannot."""
    if values.dtype in (torch.bool, torch.float16, torch.bfloat16, torch.float32, torch.float64):
        return values
    return values.view(INTS[values.element_size() * 8])


def undetermined(dtype: Any) -> float | int:
    """What the padding of `PaddingMode.UNDETERMINED` is here: something that no result survives."""
    if dtype is ct.bool_:
        return 1
    return float("nan") if is_float(dtype) else integer_range(dtype)[1]


def is_unwritten(values: torch.Tensor) -> torch.Tensor:
    """Which elements, as they lie in memory, nobody has written."""
    pattern = UNWRITTEN.get(values.dtype)
    if pattern is None:
        return torch.zeros(values.shape, dtype=torch.bool)
    return values.view(INTS[values.element_size() * 8]) == pattern
