"""The floats that NumPy does not have, computed in Triton's interpreter as a GPU computes them.

The interpreter holds a bfloat16 and the 8-bit floats as integers of their bits. Of Triton 3.9 still
it computes with these integers, so that twice 1.0 is -0.0 of bfloat16, cuts off where a GPU rounds,
and loses the carry of a mantissa that is rounded up. Here bfloat16 is computed in float32 and
rounded to nearest even at each operation, and a conversion rounds so, and saturates to 8 bits.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

BITS, NAN_BITS = "bf16", 0x7FFF
EIGHT_BIT = {
    "fp8e4nv": "float8_e4m3fn",
    "fp8e5": "float8_e5m2",
    "fp8e4b8": "float8_e4m3fnuz",
    "fp8e5b16": "float8_e5m2fnuz",
}
"""Triton's name -> torch's, which converts them; fp8e4b15 it has none of."""
FIRST_CONVERTED = ("fp16", "bf16", "fp32")


def widened(bits: Any) -> Any:
    """The float32 that bits of a bfloat16 are."""
    np = sys.modules["numpy"]
    return np.left_shift(bits, 16, dtype=np.uint32).view(np.float32)


def narrowed(values: Any) -> Any:
    """The bits of the nearest bfloat16, of two the even one."""
    np = sys.modules["numpy"]
    values = np.asarray(values, dtype=np.float32)
    bits = values.view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(
        16
    )
    return np.where(np.isnan(values), NAN_BITS, rounded).astype(np.uint16)


def mend(interpreter: Any) -> None:
    """Have the interpreter compute so; a second time changes nothing."""
    builder = interpreter.InterpreterBuilder
    if hasattr(builder.binary_op, "of_floats"):
        return
    if hasattr(interpreter, "_convert_float"):
        interpreter._convert_float = _converting(interpreter, interpreter._convert_float)
    for name, make in {
        "cast_impl": _cast,
        "unary_op": _unary,
        "binary_op": _binary,
        "create_fma": _fma,
        "create_clampf": _clamp,
        "create_dot": _dot,
        "create_atomic_rmw": _atomic,
    }.items():
        original = getattr(builder, name, None)
        if original is not None:
            made: Any = functools.wraps(original)(make(interpreter, original))
            made.of_floats = True
            setattr(builder, name, made)

    if not hasattr(builder, "get_bf16"):  # before Triton 3.9

        def get_bf16(_: Any, value: float) -> Any:
            """A constant."""
            return interpreter.TensorHandle(narrowed([value]), interpreter.tl.bfloat16)

        builder.get_bf16 = get_bf16
    for owner, name, make in (
        ("ReduceOps", "sum", _sum),
        ("ReduceOps", "min_max", _extreme),
        ("ScanOps", "cumsum", _scan),
        ("ScanOps", "cumprod", _scan),
    ):
        kind = getattr(interpreter, owner, None)
        if hasattr(kind, name):
            setattr(kind, name, make(interpreter, getattr(kind, name)))


def _is_bits(handle: Any) -> bool:
    """Whether a handle holds bfloat16; what a comparison of them gives is named so too."""
    return bool(handle.dtype.scalar.name == BITS and handle.data.dtype.name == "uint16")


def _values(handle: Any) -> Any:
    return widened(handle.data) if _is_bits(handle) else handle.data


def _converting(interpreter: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    np, toward_zero = interpreter.np, interpreter._ir.ROUNDING_MODE.RTZ

    def convert_float(values: Any, source: Any, target: Any, mode: Any) -> Any:
        """`_convert_float`: bits of one type as bits of another."""
        here, there = source.name, target.name
        if here == BITS and there == "fp32":
            return widened(values).view(np.uint32)
        if mode == toward_zero:
            return original(values, source, target, mode)
        if here == "fp32" and there == BITS:
            return narrowed(values)
        if here in EIGHT_BIT and there in FIRST_CONVERTED:
            wide = _of_eight_bit(here)[values]
            if there == BITS:
                return narrowed(wide)
            made = wide.astype(interpreter._get_np_dtype(target))
            return made.view(f"uint{8 * made.itemsize}")
        if there in EIGHT_BIT and here in FIRST_CONVERTED:
            return _as_eight_bit(widened(values) if here == BITS else values, there)
        return original(values, source, target, mode)

    return convert_float


@functools.cache
def _of_eight_bit(name: str) -> Any:
    """The values of all of them, by their bits."""
    import torch

    bits = torch.arange(256, dtype=torch.uint8)
    return bits.view(getattr(torch, EIGHT_BIT[name])).float().numpy()


def _as_eight_bit(values: Any, name: str) -> Any:
    import torch

    np, kind = sys.modules["numpy"], getattr(torch, EIGHT_BIT[name])
    limit = torch.finfo(kind).max
    wide = torch.from_numpy(np.array(values, dtype=np.float32))
    return wide.clamp(-limit, limit).to(kind).view(torch.uint8).numpy()


# --- operations of the builder -------------------------------------------------------------------


def _cast(interpreter: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    np, handle = interpreter.np, interpreter.TensorHandle

    def cast_impl(self: Any, source: Any, kind: Any) -> Any:
        target = kind.scalar
        if target.name == BITS and source.dtype.scalar.name != BITS:
            return handle(narrowed(source.data.astype(np.float32)), target)
        if _is_bits(source) and target.name != BITS:
            wide = widened(source.data)
            return handle(wide.astype(interpreter._get_np_dtype(target)), target)
        return original(self, source, kind)

    return cast_impl


def _unary(interpreter: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    def unary_op(self: Any, given: Any, compute: Callable[..., Any]) -> Any:
        if not _is_bits(given):
            return original(self, given, compute)
        made = narrowed(compute(widened(given.data)))
        return interpreter.TensorHandle(made, given.dtype.scalar)

    return unary_op


def _binary(interpreter: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    np, handle = interpreter.np, interpreter.TensorHandle

    def binary_op(self: Any, one: Any, other: Any, compute: Callable[..., Any]) -> Any:
        if not _is_bits(one):
            return original(self, one, other, compute)
        made = compute(widened(one.data), _values(other))
        if made.dtype == np.bool_:
            return handle(made, interpreter.tl.int1)
        return handle(narrowed(made), one.dtype.scalar)

    return binary_op


def _fma(interpreter: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    np = interpreter.np

    def create_fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        if not _is_bits(z):
            return original(self, x, y, z)
        x, y, wide = (_values(each).astype(np.float64) for each in (x, y, z))
        return interpreter.TensorHandle(narrowed(x * y + wide), z.dtype.scalar)

    return create_fma


def _clamp(interpreter: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    def create_clampf(self: Any, given: Any, low: Any, high: Any, propagate_nans: Any) -> Any:
        never = interpreter._ir.PROPAGATE_NAN.NONE
        if not _is_bits(given) or propagate_nans == never:  # the latter is two operations
            return original(self, given, low, high, propagate_nans)
        made = interpreter.np.clip(*map(_values, (given, low, high)))
        return interpreter.TensorHandle(narrowed(made), given.dtype.scalar)

    return create_clampf


def _dot(interpreter: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        wide = [
            interpreter.TensorHandle(widened(each.data), interpreter.tl.float32)
            if _is_bits(each)
            else each
            for each in (a, b)
        ]
        return original(self, *wide, *rest)

    return create_dot


def _atomic(interpreter: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    np, handle = interpreter.np, interpreter.TensorHandle

    def create_atomic_rmw(
        self: Any, operation: Any, pointers: Any, value: Any, mask: Any, *rest: Any
    ) -> Any:
        if operation != interpreter._ir.ATOMIC_OP.FADD or not _is_bits(value):
            return original(self, operation, pointers, value, mask, *rest)
        kind, memory = value.dtype.scalar, interpreter._interpreter  # guarded in some calls
        places, added, wanted = np.broadcast_arrays(
            pointers.data, widened(value.data), mask.data.astype(bool)
        )
        before = np.zeros(places.shape, dtype=np.uint16)
        flat, added, left = places.ravel(), added.ravel(), np.flatnonzero(wanted)
        while left.size:  # of those that share an address, one at a time
            _, first = np.unique(flat[left], return_index=True)
            now = left[first]
            at, every = np.ascontiguousarray(flat[now]), np.ones(now.shape, dtype=bool)
            # what the builder's own loads and stores call, whose arguments change with releases
            old = memory.load(at, every, np.zeros(now.shape, np.uint16), np.dtype(np.uint16))
            before.ravel()[now] = old
            memory.store(at, narrowed(widened(old) + added[now]), every)
            left = np.delete(left, first)
        return handle(before, kind)

    return create_atomic_rmw


# --- reductions and scans ------------------------------------------------------------------------


def _sum(interpreter: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    def sum_of(self: Any, given: Any) -> Any:
        """A tree of halves; a GPU's order is its own, but it rounds at each step."""
        if not _is_bits(given.handle):
            return original(self, given)
        values = widened(given.handle.data)
        axis, left = (0, [1] * values.ndim) if self.axis is None else (self.axis, None)
        values = values.reshape(-1) if self.axis is None else values
        while values.shape[axis] > 1:
            low, high = interpreter.np.split(values, 2, axis=axis)
            values = widened(narrowed(low + high))
        if self.keep_dims:
            values = values if left is None else values.reshape(left)
        else:
            values = values.squeeze(axis)
        return self.to_tensor(narrowed(values), given.dtype)

    return sum_of


def _extreme(interpreter: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    def min_max(self: Any, given: Any, val_reduce_op: Any, idx_reduce_op: Any = None) -> Any:
        first = given[0] if isinstance(given, tuple) else given
        if not _is_bits(first.handle):
            return original(self, given, val_reduce_op, idx_reduce_op)
        float32 = interpreter.tl.float32
        wide = interpreter.TensorHandle(widened(first.handle.data), float32)
        shape = [size.value for size in first.shape]
        found = original(
            self,
            interpreter.tl.core.tensor(wide, interpreter.tl.block_type(float32, shape)),
            val_reduce_op,
            idx_reduce_op,
        )
        if not val_reduce_op:
            return found
        value = found[0] if isinstance(found, tuple) else found
        bits = narrowed(value.handle.data)
        value = self.to_tensor(bits if value.type.is_block() else bits.squeeze(), first.dtype)
        return (value, found[1]) if isinstance(found, tuple) else value

    return min_max


def _scan(interpreter: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    np = interpreter.np
    step = np.add if original.__name__ == "cumsum" else np.multiply

    def scan(self: Any, given: Any) -> Any:
        if not _is_bits(given.handle):
            return original(self, given)
        values = np.moveaxis(widened(given.handle.data), self.axis, 0).copy()
        for place in range(1, len(values)):
            values[place] = widened(narrowed(step(values[place - 1], values[place])))
        made = np.ascontiguousarray(np.moveaxis(narrowed(values), 0, self.axis))
        return [self.to_tensor(made, dtype=given.dtype)]

    return scan
