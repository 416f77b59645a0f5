"""Elementwise arithmetic, comparisons, bits and select, with cuda.tile's promotion."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from tile_agent_pytest.tile_cpu import dtypes
from tile_agent_pytest.tile_cpu.casts import cast, round_toward
from tile_agent_pytest.tile_cpu.hook import ct
from tile_agent_pytest.tile_cpu.tile import (
    Constant,
    Tile,
    as_tile,
    broadcast_shape,
    common_dtype,
    dtype_of_value,
    is_constant,
)

SIGN = -(1 << 63)
ORDERED = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
BITWISE = {"and_": operator.and_, "or_": operator.or_, "xor": operator.xor}
CONSTANTS: dict[str, Callable[..., Any]] = {
    **ORDERED,
    **BITWISE,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "lshift": operator.lshift,
    "rshift": operator.rshift,
    "min": min,
    "max": max,
    "atan2": math.atan2,
}
"""What two Python constants give: a Python constant."""

ARITHMETIC: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "truediv": torch.div,
    "floordiv": partial(torch.div, rounding_mode="floor"),
    "mod": torch.remainder,
    "pow": torch.pow,
    "atan2": torch.atan2,
    "min": torch.fmin,
    "max": torch.fmax,
}
"""`min` and `max` leave out a NaN unless asked to propagate it."""

SUBNORMAL = 2.0**-126


def operands(x: Any, y: Any, dtype: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The values of both as `dtype`, not broadcast."""
    return _as(x, dtype), _as(y, dtype)


def _as(x: Any, dtype: Any) -> torch.Tensor:
    return cast(as_tile(x, dtype if dtypes.is_float(dtype) else None), dtype).values


def binary(
    name: str,
    x: Any,
    y: Any,
    *,
    rounding_mode: Any = None,
    flush_to_zero: bool = False,
    propagate_nan: bool = False,
) -> Any:
    """Arithmetic on two tiles or constants."""
    if is_constant(x) and is_constant(y):
        return CONSTANTS[name](x, y)
    if name == "pow" and _is_integer_power(x, y):
        dtype = dtype_of_value(x)
    else:
        dtype = common_dtype(x, y, force_float=name == "truediv")
    if dtype in dtypes.RESTRICTED or dtype is ct.bool_:
        raise ct.TileTypeError(f"{name} does not take {dtype.name}; cast it first")
    if name == "floordiv" and dtype in dtypes.UNSIGNED:
        raise ct.TileTypeError(
            f"cuda-tile 1.7 does not compile a // of {dtype.name}; cast it to a signed type first"
        )
    if name in ("pow", "atan2") and not dtypes.is_float(dtype):
        raise ct.TileTypeError(f"{name} needs floats, got {dtype.name}; cast it first")
    a, b = operands(x, y, dtype)
    broadcast_shape(tuple(a.shape), tuple(b.shape))
    if flush_to_zero:
        a, b = flush(a), flush(b)
    result = _compute(name, a, b, dtype, rounding_mode, propagate_nan)
    return Tile(flush(result) if flush_to_zero else result, dtype)


def _compute(
    name: str, a: torch.Tensor, b: torch.Tensor, dtype: Any, rounding_mode: Any, nan: bool
) -> torch.Tensor:
    if dtypes.is_integral(dtype):
        if name in ("floordiv", "mod") and bool((b == 0).any()):
            raise ct.TileValueError(f"integer {name} by zero")
        if dtype is ct.uint64 and name in ("floordiv", "mod"):
            return _by_element(CONSTANTS[name], a, b)
        if name in ("min", "max"):
            first = less(a, b, dtype) if name == "min" else less(b, a, dtype)
            return torch.where(first, a, b)
    elif name in ("min", "max") and nan:
        return (torch.minimum if name == "min" else torch.maximum)(a, b)
    elif name == "floordiv":
        return dtypes.fit(dtypes.fit(torch.div(a, b), dtype).floor(), dtype)
    elif rounding_mode in (ct.RoundingMode.RZ, ct.RoundingMode.RM, ct.RoundingMode.RP):
        if dtype is ct.float64:
            raise ct.TileTypeError(f"{rounding_mode.name} of float64 is not computed on the CPU")
        return round_toward(ARITHMETIC[name](a.double(), b.double()), dtype, rounding_mode)
    return dtypes.fit(ARITHMETIC[name](a, b), dtype)


def _is_integer_power(x: Any, y: Any) -> bool:
    """A float to an integer power keeps the float's dtype."""
    exponent = dtype_of_value(y)
    small = exponent in (ct.int8, ct.int16, ct.int32, ct.uint8, ct.uint16)
    return isinstance(x, Tile) and x.dtype in dtypes.FLOATS and small


def _by_element(
    operation: Callable[[int, int], int], a: torch.Tensor, b: torch.Tensor
) -> torch.Tensor:
    """For uint64, whose upper half torch has no arithmetic for."""
    a, b = torch.broadcast_tensors(a, b)
    mask = (1 << 64) - 1
    whole = [
        operation(p & mask, q & mask)
        for p, q in zip(a.flatten().tolist(), b.flatten().tolist(), strict=True)
    ]
    signed = [value - (1 << 64) if value >> 63 else value for value in whole]
    return torch.tensor(signed, dtype=torch.int64).reshape(a.shape)


def less(a: torch.Tensor, b: torch.Tensor, dtype: Any) -> torch.Tensor:
    return a ^ SIGN < b ^ SIGN if dtype is ct.uint64 else a < b


def flush(values: torch.Tensor) -> torch.Tensor:
    """Subnormal fp32 values become zeros of their sign."""
    return torch.where(values.abs() < SUBNORMAL, torch.copysign(torch.zeros(()), values), values)


def compare(name: str, x: Any, y: Any) -> Any:
    if is_constant(x) and is_constant(y):
        return ORDERED[name](x, y)
    dtype = common_dtype(x, y)
    a, b = operands(x, y, dtype)
    broadcast_shape(tuple(a.shape), tuple(b.shape))
    if dtype is ct.uint64:
        a, b = a ^ SIGN, b ^ SIGN
    return Tile(ORDERED[name](a, b), ct.bool_)


def bitwise(name: str, x: Any, y: Any) -> Any:
    if is_constant(x) and is_constant(y):
        return BITWISE[name](x, y)
    left, right = dtype_of_value(x), dtype_of_value(y)
    if dtypes.is_float(left) or dtypes.is_float(right):
        raise ct.TileTypeError("bitwise operations need integers or booleans; bitcast floats")
    if is_constant(x) == is_constant(y) and left is not right:
        raise ct.TileTypeError(f"bitwise operands differ: {left.name} and {right.name}")
    dtype = common_dtype(x, y)
    a, b = operands(x, y, dtype)
    broadcast_shape(tuple(a.shape), tuple(b.shape))
    return Tile(BITWISE[name](a, b), dtype)


def shift(name: str, x: Any, y: Any) -> Any:
    if is_constant(x) and is_constant(y):
        return CONSTANTS[name](x, y)
    for side, value in (("left", x), ("right", y)):
        if not dtypes.is_integral(dtype_of_value(value)):
            raise ct.TileTypeError(f"the {side} side of a shift must be an integer")
    dtype = common_dtype(x, y)
    a, b = operands(x, y, dtype)
    if name == "lshift":
        return Tile(dtypes.fit(a << b, dtype), dtype)
    shifted = a >> b
    if dtype is ct.uint64:
        shifted = torch.where(b == 0, a, shifted & ~(torch.full_like(a, SIGN) >> (b - 1)))
    return Tile(shifted, dtype)


def where(cond: Any, x: Any, y: Any, /) -> Tile:
    dtype = common_dtype(x, y)
    a, b = operands(x, y, dtype)
    chosen = cast(as_tile(cond), ct.bool_).values
    broadcast_shape(tuple(chosen.shape), tuple(a.shape), tuple(b.shape))
    return Tile(torch.where(chosen, a, b), dtype)


def cdiv(x: Any, y: Any, /) -> Any:
    return -(-x // y)


def divide_with_remainder(x: Any, y: Any, /) -> tuple[Any, Any]:
    if not (is_constant(x) and is_constant(y)) and dtypes.is_float(common_dtype(x, y)):
        raise ct.TileTypeError("divmod() is not implemented for floats")
    return binary("floordiv", x, y), binary("mod", x, y)


def _operator(compute: Callable[..., Any], name: str, reflected: bool = False) -> Any:
    def method(self: Tile, other: Any) -> Any:
        if not isinstance(other, (Tile, *Constant)):
            return NotImplemented
        return compute(name, other, self) if reflected else compute(name, self, other)

    return method


KINDS: tuple[tuple[Callable[..., Any], tuple[str, ...]], ...] = (
    (binary, ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")),
    (bitwise, ("and_", "or_", "xor")),
    (shift, ("lshift", "rshift")),
)
for _compute_kind, _names in KINDS:
    for _name in _names:
        _dunder = _name.rstrip("_")
        setattr(Tile, f"__{_dunder}__", _operator(_compute_kind, _name))
        setattr(Tile, f"__r{_dunder}__", _operator(_compute_kind, _name, reflected=True))
for _name in ORDERED:
    setattr(Tile, f"__{_name}__", _operator(compare, _name))
Tile.__hash__ = object.__hash__  # type: ignore[method-assign]
Tile.__divmod__ = lambda self, other: divide_with_remainder(self, other)
Tile.__rdivmod__ = lambda self, other: divide_with_remainder(other, self)

OPERATIONS = {
    "where": where,
    "cdiv": cdiv,
    "divmod": divide_with_remainder,
    "minimum": partial(binary, "min"),
    "maximum": partial(binary, "max"),
    "bitwise_and": partial(bitwise, "and_"),
    "bitwise_or": partial(bitwise, "or_"),
    "bitwise_xor": partial(bitwise, "xor"),
    "bitwise_lshift": partial(shift, "lshift"),
    "bitwise_rshift": partial(shift, "rshift"),
    "equal": partial(compare, "eq"),
    "not_equal": partial(compare, "ne"),
    "less": partial(compare, "lt"),
    "less_equal": partial(compare, "le"),
    "greater": partial(compare, "gt"),
    "greater_equal": partial(compare, "ge"),
    **{
        name: partial(binary, name)
        for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "atan2")
    },
}
