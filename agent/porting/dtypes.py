"""Data types of both languages by cuTile's names, and what two of them are computed in.

The tables are those of `triton.language.semantic` (3.9) and of cuda.tile (1.7);
`tests/porting/test_dtypes.py` holds them against what is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

BOOL = "bool_"
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = (*SIGNED, *UNSIGNED)
HALVES = ("float16", "bfloat16")
WIDE_FLOATS = ("float32", "float64")
FLOATS = (*HALVES, *WIDE_FLOATS)
BYTE_FLOATS = ("float8_e4m3fn", "float8_e5m2")
ALL = (BOOL, *INTEGERS, *FLOATS, *BYTE_FLOATS)

OF_TRITON: Mapping[str, str] = {
    "int1": BOOL,
    **{name: name for name in (*INTEGERS, *FLOATS)},
    "float8e4nv": "float8_e4m3fn",
    "float8e5": "float8_e5m2",
}
"""Triton's name of a type -> cuTile's."""

WIDTHS = {BOOL: 1} | {name: int(name.lstrip("uint")) for name in INTEGERS}
ERROR = ""
"""The language refuses to compute with both; the compiler says so, and nothing goes wrong."""


def family(dtype: str) -> int:
    """0 for a boolean, 1 for an integer, 2 for a float."""
    return 0 if dtype == BOOL else 1 if dtype in INTEGERS else 2


@cache
def triton_type(a: str, b: str, *, divides: bool = False) -> str:
    """What Triton computes in.

    Args:
        a: a type.
        b: another one.
        divides: the operation is `/`, `//` or `%`.
    """
    if "float64" in (a, b):
        return "float64"
    if divides and 2 in (family(a), family(b)):
        return "float32"
    for wide in ("float32", "float16"):
        if wide in (a, b):
            return wide
    if "bfloat16" in (a, b):
        return "bfloat16" if a == b else "float32"
    if a in BYTE_FLOATS or b in BYTE_FLOATS:
        if a in BYTE_FLOATS and b in BYTE_FLOATS:
            return a if a == b else "float16"
        return ERROR
    if divides and (a in SIGNED) != (b in SIGNED):
        return ERROR
    return _common_integer(a, b)


def _common_integer(a: str, b: str) -> str:
    """The usual arithmetic conversions of C, without promotion to int; bool is unsigned."""
    one, other = a in SIGNED, b in SIGNED
    if one == other:
        return a if WIDTHS[a] > WIDTHS[b] else b
    signed, unsigned = (a, b) if one else (b, a)
    return unsigned if WIDTHS[unsigned] >= WIDTHS[signed] else signed


@cache
def tile_type(a: str, b: str, *, divides: bool = False) -> str:
    """What cuTile computes in; `divides` for `/` alone."""
    if a in BYTE_FLOATS or b in BYTE_FLOATS:
        return a if a == b else ERROR
    if {a, b} == set(HALVES):
        return ERROR
    if 2 in (family(a), family(b)):
        if family(a) != family(b):
            return a if family(a) == 2 else b
        return max(a, b, key=FLOATS.index)
    if (a in UNSIGNED and b in SIGNED) or (a in SIGNED and b in UNSIGNED):
        return ERROR
    if divides:
        return "float32"
    return max(a, b, key=WIDTHS.__getitem__)
