"""Functions of CUDA's libdevice that work on bits, or round in a direction, by NumPy.

Each takes the arrays of its arguments as they are, and returns what is cast to the result's type.
They are not known here: what rounds float64 in a direction, 64-bit integers that are converted so,
and Bessel functions of any order.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

INTEGERS = {"int": "int32", "uint": "uint32", "ll": "int64", "ull": "uint64"}
"""How the device names them -> how NumPy does."""
DIRECTIONS = {"rd": "floor", "rn": "rint", "ru": "ceil", "rz": "trunc"}


def bit_function(name: str) -> Callable[..., Any] | None:
    """The function of a device's name without its prefix, such as popc; None for others."""
    if found := re.fullmatch(r"(float|double)2(int|uint|ll|ull)_(r[dnuz])", name):
        return functools.partial(_to_integer, INTEGERS[found[2]], DIRECTIONS[found[3]])
    if re.fullmatch(r"u?(int|ll)2(float|double)_rn|double2float_rn", name):
        return lambda x: x
    if found := re.fullmatch(r"(u?int|double)2float_(r[duz])", name):
        return functools.partial(_to_float32, found[2])
    if found := re.fullmatch(r"f(add|sub|mul|div|rcp|sqrt)_(r[duz])|(fma)f_(r[duz])", name):
        exact = _EXACT[found[1] or found[3]]
        return lambda *given: _to_float32(found[2] or found[4], exact(*map(_wide, given)))
    known = _functions()
    return known.get(name) or (known.get(name[:-1]) if name.endswith("f") else None)


def _numpy() -> Any:
    """NumPy, which Triton's interpreter has imported."""
    return sys.modules["numpy"]


def _wide(array: Any) -> Any:
    return array.astype("float64")


_EXACT: Mapping[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "rcp": lambda a: 1 / a,
    "sqrt": lambda a: a**0.5,
    "fma": lambda a, b, c: a * b + c,
}


def _to_integer(kind: str, rounding: str, x: Any) -> Any:
    """As a device converts: what is too large becomes the largest, and NaN zero."""
    np = _numpy()
    limits, whole = np.iinfo(kind), getattr(np, rounding)(x.astype("float64"))
    inside = np.where(np.isnan(whole) | (whole >= limits.max) | (whole <= limits.min), 0, whole)
    found = np.where(whole >= limits.max, limits.max, inside.astype(kind))
    return np.where(whole <= limits.min, limits.min, found).astype(kind)


def _to_float32(direction: str, exact: Any) -> Any:
    """The next float32 in a direction, of numbers in float64."""
    np = _numpy()
    exact = exact.astype("float64")
    nearest = exact.astype("float32")
    below = nearest.astype("float64") < exact
    above = nearest.astype("float64") > exact
    up = below & ((direction == "ru") | ((direction == "rz") & (exact < 0)))
    down = above & ((direction == "rd") | ((direction == "rz") & (exact > 0)))
    found = np.where(up, np.nextafter(nearest, np.float32(np.inf)), nearest)
    return np.where(down, np.nextafter(found, np.float32(-np.inf)), found)


def _digits(x: Any) -> Any:
    """The bits of each integer, the last one first, in a new dimension."""
    np = _numpy()
    width = 8 * x.dtype.itemsize
    plain = x.view(f"uint{width}")[..., None]
    return (plain >> np.arange(width, dtype=plain.dtype)) & plain.dtype.type(1)


def _leading_zeros(x: Any) -> Any:
    seen = _digits(x)[..., ::-1].cumsum(axis=-1)
    return (seen == 0).sum(axis=-1)


def _first_set(x: Any) -> Any:
    np = _numpy()
    digits = _digits(x)
    return np.where(digits.any(axis=-1), digits.argmax(axis=-1) + 1, 0)


def _reversed(x: Any) -> Any:
    np = _numpy()
    digits = _digits(x)[..., ::-1]
    width = digits.shape[-1]
    places = np.arange(width, dtype=digits.dtype)
    return (digits << places).sum(axis=-1, dtype=digits.dtype).view(x.dtype)


def _exponent(x: Any) -> Any:
    np = _numpy()
    return np.frexp(x.astype("float64"))[1] - 1.0


def _whole_exponent(x: Any) -> Any:
    np = _numpy()
    least, most = -(2**31), 2**31 - 1
    found = np.where(np.isinf(x), most, np.where((x == 0) | np.isnan(x), least, _exponent(x)))
    return found.astype("int64")


def _logb(x: Any) -> Any:
    np = _numpy()
    found = np.where(x == 0, -np.inf, np.where(np.isinf(x), np.inf, _exponent(x)))
    return np.where(np.isnan(x), x, found)


def _remainder(x: Any, y: Any) -> Any:
    np = _numpy()
    a, b = _wide(x), _wide(y)
    return a - np.rint(a / b) * b


def _low24(x: Any) -> Any:
    """The last 24 bits of a 32-bit integer, of which the first is the sign where it has one."""
    shifted = x << x.dtype.type(8)
    return (shifted >> x.dtype.type(8)).astype("int64")


def _norm(*parts: Any) -> Any:
    return sum(_wide(part) ** 2 for part in parts) ** 0.5


def _long(x: Any) -> Any:
    return x.astype("int64")


@functools.cache
def _functions() -> Mapping[str, Callable[..., Any]]:
    def halved(more: int) -> Callable[..., Any]:
        return lambda a, b: (_long(a) + _long(b) + more) >> 1

    def product_high(a: Any, b: Any) -> Any:
        return (a.astype("uint64") * b.astype("uint64") if a.dtype.kind == "u" else
                _long(a) * _long(b)) >> 32  # fmt: skip

    def distance(a: Any, b: Any, c: Any) -> Any:
        return abs(_long(a) - _long(b)) + _long(c)

    def viewed(kind: str) -> Callable[..., Any]:
        return lambda x: x.view(kind)

    named: dict[str, Callable[..., Any]] = {
        "popc": lambda x: _digits(x).sum(axis=-1),
        "clz": _leading_zeros,
        "ffs": _first_set,
        "brev": _reversed,
    }
    return {
        **named,
        **{f"{name}ll": function for name, function in named.items()},
        "hadd": halved(0), "uhadd": halved(0), "rhadd": halved(1), "urhadd": halved(1),
        "mulhi": product_high, "umulhi": product_high,
        "mul24": lambda a, b: _low24(a) * _low24(b),
        "umul24": lambda a, b: _low24(a) * _low24(b),
        "sad": distance, "usad": distance,
        "float_as_int": viewed("int32"), "float_as_uint": viewed("uint32"),
        "int_as_float": viewed("float32"), "uint_as_float": viewed("float32"),
        "double_as_longlong": viewed("int64"), "longlong_as_double": viewed("float64"),
        "double2hiint": lambda x: x.view("int64") >> 32,
        "double2loint": lambda x: x.view("int64").astype("int32"),
        "ilogb": _whole_exponent,
        "logb": _logb,
        "remainder": _remainder,
        "norm3d": _norm, "norm4d": _norm,
        "rnorm3d": lambda *x: 1 / _norm(*x), "rnorm4d": lambda *x: 1 / _norm(*x),
    }  # fmt: skip
