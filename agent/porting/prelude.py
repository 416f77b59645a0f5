"""What a port brings along: small functions for what the languages do differently.

Each is written into the file only where it is used, so that a port needs neither Triton nor
tile-agent when it runs. `{ct}` and `{torch}` are what the file calls these modules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Helper(NamedTuple):
    """A function of the prelude."""

    text: str
    needs: tuple[str, ...] = ()
    """Others that it calls."""


HELPERS: Mapping[str, Helper] = {
    "flat": Helper('''\
def flat(x):
    """The memory from the first element of x on, as an array of one dimension; nothing is copied.

    A Triton kernel counts its offsets from there, whatever the shape and the strides of x are.
    """
    size = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
    return {torch}.as_strided(x.detach(), (max(size, 0),), (1,))
'''),
    "cdiv": Helper('''\
def cdiv(x, y):
    """How many blocks of y cover x."""
    return (x + y - 1) // y
'''),
    "next_power_of_2": Helper('''\
def next_power_of_2(n):
    """The smallest power of two that is not below n."""
    return 1 << (n - 1).bit_length() if n > 0 else 0
'''),
    "apart": Helper('''\
def apart(kernel, stored, others):
    """Raise where memory that a kernel stores to is reached through another array as well.

    cuTile takes the arrays of a launch to be distinct, and orders accesses to each by itself.
    """
    arrays = {**stored, **others}
    for one in stored:
        for other in arrays:
            if one != other and overlap(arrays[one], arrays[other]):
                raise ValueError(
                    f"{kernel}: {one} and {other} share memory, and {one} is stored to: cuTile "
                    "takes the arrays of a launch to be distinct"
                )
''', ("overlap",)),
    "overlap": Helper('''\
def overlap(x, y):
    """Whether two tensors may share a byte: rows of one matrix do not, nor do strips of columns."""
    if x is None or y is None or not x.numel() or not y.numel():
        return False
    axes = [
        [(t.element_size() * stride, n - 1) for n, stride in zip(t.shape, t.stride()) if n > 1]
        for t in (x, y)
    ]
    first, second = (t.data_ptr() for t in (x, y))
    ends = [
        t.data_ptr() + t.element_size() + sum(stride * last for stride, last in listed)
        for t, listed in zip((x, y), axes)
    ]
    if ends[0] <= second or ends[1] <= first:
        return False
    for row in {stride for stride, _ in axes[0]} & {stride for stride, _ in axes[1]} - {0}:
        widths = [
            t.element_size() + sum(stride * last for stride, last in listed if stride < row)
            for t, listed in zip((x, y), axes)
        ]
        whole = all(stride % row == 0 for listed in axes for stride, _ in listed if stride >= row)
        gap = (second - first) % row
        if whole and widths[0] <= gap and gap + widths[1] <= row:
            return False
    return True
'''),
    "wide": Helper('''\
def wide(x):
    """x in at least fp32, which Triton divides in."""
    if x.dtype == {ct}.float64 or x.dtype == {ct}.float32:
        return x
    return {ct}.astype(x, {ct}.float32)
'''),
    "wide_for_max": Helper('''\
def wide_for_max(x):
    """x in at least 32 bits, which Triton takes maxima and minima in."""
    if x.dtype in ({ct}.bool_, {ct}.int8, {ct}.int16, {ct}.uint8, {ct}.uint16):
        return {ct}.astype(x, {ct}.int32)
    if x.dtype in ({ct}.float16, {ct}.bfloat16):
        return {ct}.astype(x, {ct}.float32)
    return x
'''),
    "wide_for_sum": Helper('''\
def wide_for_sum(x):
    """x as Triton sums it: short integers in 32 bits; a boolean is an unsigned one of one bit."""
    if x.dtype in ({ct}.int8, {ct}.int16):
        return {ct}.astype(x, {ct}.int32)
    if x.dtype in ({ct}.bool_, {ct}.uint8, {ct}.uint16):
        return {ct}.astype(x, {ct}.uint32)
    return x
'''),
    "quotient": Helper('''\
def quotient(x, y):
    """x // y as Triton has it: toward zero, where Python and cuTile round down."""
    if {ct}.static_eval(is_narrow(x) or is_narrow(y)):
        wide = toward_zero({ct}.astype(x, {ct}.int64), {ct}.astype(y, {ct}.int64))
        return {ct}.astype(wide, (x % y).dtype)
    return toward_zero(x, y)
''', ("is_narrow", "toward_zero")),
    "toward_zero": Helper('''\
def toward_zero(x, y):
    """The quotient of signed integers."""
    down = x // y
    return {ct}.where((x % y != 0) & ((x < 0) != (y < 0)), down + 1, down)
'''),
    "remainder": Helper('''\
def remainder(x, y):
    """x % y as Triton has it: with the sign of x, where Python and cuTile take that of y."""
    if {ct}.static_eval(is_narrow(x) or is_narrow(y)):
        kind = (x % y).dtype
        rest = signed_as_x({ct}.astype(x, {ct}.int64), {ct}.astype(y, {ct}.int64))
        found = {ct}.astype(rest, kind)
    else:
        found = signed_as_x(x, y)
        kind = found.dtype
    {ct}.static_assert(
        kind not in ({ct}.float16, {ct}.bfloat16, {ct}.float32, {ct}.float64),
        "the remainder of floats is not ported",
    )
    return found
''', ("is_narrow", "signed_as_x")),
    "signed_as_x": Helper('''\
def signed_as_x(x, y):
    """The remainder of signed integers."""
    rest = x % y
    return {ct}.where((rest != 0) & ((x < 0) != (y < 0)), rest - y, rest)
'''),
    "is_narrow": Helper('''\
def is_narrow(x):
    """Whether x is a tile of short integers, or of unsigned ones, for which cuTile has no `//`."""
    return getattr(x, "dtype", None) in (
        {ct}.int8, {ct}.int16, {ct}.uint8, {ct}.uint16, {ct}.uint32
    )
'''),
    "typed": Helper('''\
def typed(c):
    """c, where it is a number that the compiler knows, as the tensor that Triton makes of it."""
    if {ct}.static_eval(hasattr(c, "dtype")):
        return c
    return {ct}.full((), c, {ct}.static_eval(type_of(c)))
''', ("type_of",)),
    "type_of": Helper('''\
def type_of(c):
    """The type that Triton gives to a number of Python's."""
    if isinstance(c, bool):
        return {ct}.bool_
    if isinstance(c, float):
        return {ct}.float32
    if -(2**31) <= c < 2**32:
        return {ct}.int32 if c < 2**31 else {ct}.uint32
    return {ct}.int64
'''),
    "alike": Helper('''\
def alike(a, b):
    """Whether Triton and cuTile compute the types a and b in the same one."""
    floats = ({ct}.float16, {ct}.bfloat16, {ct}.float32, {ct}.float64)
    return {ct}.bfloat16 not in (a, b) or (a in floats and b in floats)
'''),
    "dot": Helper('''\
def dot(x, y):
    """x @ y, accumulated from zero."""
    kind = {ct}.float32
    if x.dtype in ({ct}.int8, {ct}.uint8):
        kind = {ct}.int32
    if x.dtype == {ct}.float64:
        kind = {ct}.float64
    if x.ndim == 3:
        return {ct}.mma(x, y, {ct}.zeros((x.shape[0], x.shape[1], y.shape[2]), kind))
    return {ct}.mma(x, y, {ct}.zeros((x.shape[0], y.shape[1]), kind))
'''),
}  # fmt: skip


def needed(names: Iterable[str]) -> tuple[str, ...]:
    """These helpers and those that they call, each after what it calls."""
    found: list[str] = []

    def add(name: str) -> None:
        for other in HELPERS[name].needs:
            add(other)
        if name not in found:
            found.append(name)

    for name in HELPERS:
        if name in set(names):
            add(name)
    return tuple(found)
