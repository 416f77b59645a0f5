"""The value that kernels compute with: an immutable tile, 0-d for a scalar.

Python constants stay Python constants. They are weakly typed, as in cuda.tile, while a tile has a
dtype even when it is a scalar.
"""

from __future__ import annotations

from typing import Any

import torch

from tile_agent_pytest.tile_cpu import dtypes
from tile_agent_pytest.tile_cpu.hook import ct

Constant = (bool, int, float)


class Tile(ct.Tile):  # type: ignore[misc]
    """`values` is a CPU tensor of the carrier type of `dtype`. The operators are set in `binary.py`
    and `elementwise.py`; the methods that cuda.tile's `Tile` has reach us through the hook."""

    __slots__ = ("_dtype", "values")

    def __init__(self, values: torch.Tensor, dtype: Any) -> None:
        self.values = values
        self._dtype = dtype

    @property
    def dtype(self) -> Any:
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    @property
    def ndim(self) -> int:
        return int(self.values.dim())

    def __bool__(self) -> bool:
        return bool(self._scalar("a condition"))

    def __index__(self) -> int:
        if not dtypes.is_integral(self._dtype) and self._dtype is not ct.bool_:
            raise ct.TileTypeError(f"expected an integer scalar, got {self!r}")
        return int(self._scalar("an index"))

    def __int__(self) -> int:
        raise ct.TileTypeError("int() expects a constant; use astype")

    def __float__(self) -> float:
        raise ct.TileTypeError("float() expects a constant; use astype")

    def __iter__(self) -> Any:
        raise ct.TileTypeError("a tile cannot be iterated; use extract")

    def __format__(self, spec: str) -> str:
        return format(self._scalar("a format"), spec) if spec else str(self)

    def __str__(self) -> str:
        return str(self.values.tolist())

    def __repr__(self) -> str:
        return f"<tile[{self._dtype.name}, {self.shape}]>"

    def __setitem__(self, key: Any, value: Any) -> None:
        raise ct.TileTypeError("a tile cannot be changed; use insert")

    def _scalar(self, role: str) -> Any:
        if self.shape != ():
            raise ct.TileTypeError(f"{role} must be a scalar, got a tile of shape {self.shape}")
        value = self.values.item()
        if self._dtype is ct.uint64:
            value &= (1 << 64) - 1
        return value


def scalar(value: bool | int | float, dtype: Any) -> Tile:
    """A 0-d tile."""
    return constant_tile((), value, dtype)


def constant_tile(shape: tuple[int, ...], value: bool | int | float, dtype: Any) -> Tile:
    """A tile of one constant; an integer that does not fit wraps, as the compiler has it."""
    if dtypes.is_integral(dtype):
        value = int(value) & ((1 << dtype.bitwidth) - 1)
        signed_bits = dtype in dtypes.SIGNED or dtype is ct.uint64
        if signed_bits and value >> (dtype.bitwidth - 1):
            value -= 1 << dtype.bitwidth
    elif dtypes.is_float(dtype):
        exact = torch.tensor(float(value), dtype=torch.float64)
        return Tile(dtypes.fit(exact, dtype).expand(shape), dtype)
    else:
        value = bool(value)
    return Tile(torch.full(shape, value, dtype=dtypes.carrier(dtype)), dtype)


def is_constant(value: Any) -> bool:
    return isinstance(value, Constant)


def dtype_of_value(value: Any) -> Any:
    return value.dtype if isinstance(value, Tile) else dtypes.dtype_of_constant(value)


def as_tile(value: Any, dtype: Any = None) -> Tile:
    """A tile from a tile or a constant; a constant takes its own dtype where none is given."""
    if isinstance(value, Tile):
        return value
    if not is_constant(value):
        raise ct.TileTypeError(f"expected a tile or a scalar, got {type(value).__name__}")
    return scalar(value, dtype or dtypes.dtype_of_constant(value))


def common_dtype(x: Any, y: Any, force_float: bool = False) -> Any:
    """The dtype that `x` and `y` (tiles or constants) promote to."""
    if isinstance(x, Tile) and isinstance(y, Tile):
        return dtypes.promote(x.dtype, y.dtype, force_float)
    if isinstance(x, Tile):
        return dtypes.promote_with_constant(x.dtype, y, force_float)
    if isinstance(y, Tile):
        return dtypes.promote_with_constant(y.dtype, x, force_float)
    return dtypes.promote(dtypes.dtype_of_constant(x), dtypes.dtype_of_constant(y), force_float)


def broadcast_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Like `torch.broadcast_shapes`, which takes longer than the operations themselves."""
    if all(shape == shapes[0] for shape in shapes):
        return shapes[0]
    ndim = max(map(len, shapes))
    result = [1] * ndim
    for shape in shapes:
        for place, size in enumerate(shape, start=ndim - len(shape)):
            if size != 1 and result[place] not in (1, size):
                listed = ", ".join(map(str, shapes))
                raise ct.TileTypeError(f"shapes {listed} are not broadcastable")
            if size != 1:
                result[place] = size
    return tuple(result)


def integer(value: Any, what: str) -> int:
    """A constant int; a tile is not one, even a 0-d tile."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ct.TileTypeError(f"{what} must be a constant integer, got {value!r}")
    return value


def integers(value: Any, what: str) -> tuple[int, ...]:
    items = value if isinstance(value, tuple | list) else (value,)
    return tuple(integer(item, what) for item in items)


def tile_shape(value: Any, what: str = "shape") -> tuple[int, ...]:
    """A constant shape whose dimensions are powers of two."""
    shape = integers(value, what)
    for axis, size in enumerate(shape):
        if size <= 0 or size & (size - 1):
            raise ct.TileTypeError(f"dimension #{axis} of {what} {shape} is not a power of two")
    return shape


def axis_of(axis: Any, ndim: int) -> int:
    place = integer(axis, "axis")
    if not -ndim <= place < ndim:
        raise ct.TileTypeError(f"axis {place} is out of range for rank {ndim}")
    return place % ndim
