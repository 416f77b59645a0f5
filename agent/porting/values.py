"""What is known of a value while a kernel is read: the domain of the translation.

Types of elements are mostly not in the source, since a kernel is called with arrays of several. A
type is therefore a name of cuda.tile ("float32"), or a *token*: "@x_ptr" is the type of whatever
`x_ptr` is given, which the port writes as `x_ptr.dtype`, and "#n" that of a scalar of the launch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from agent.porting import dtypes

TOKEN = "@"
SCALAR = "#"
OF_SCALARS = ("int32", "float32", dtypes.BOOL)
"""What a number of a launch is in either language."""
INTEGER_LITERALS = (
    ("int32", -(2**31), 2**31),
    ("uint32", 2**31, 2**32),
    ("int64", -(2**63), 2**63),
)
SMALLEST, LARGEST = 2.0**-126, (2 - 2.0**-23) * 2.0**127
"""Of fp32; Triton makes a double of what lies beyond."""
Types = frozenset[str]


@dataclass(frozen=True)
class Number:
    """A tile or a scalar.

    Attributes:
        types: what its type may be, one of them.
        weak: a constant of the compilation, for Triton as for cuTile.
        loose: a constant for cuTile, which gives it the type of what it meets, where Triton has a
            tensor of the type: `scale = 2.0` of a kernel.
        natural: known not to be negative.
        bits: how large the literals are that it was multiplied with: what may wrap is not natural.
    """

    types: Types
    weak: bool = False
    loose: bool = False
    natural: bool = False
    bits: int = 0

    @property
    def constant(self) -> bool:
        """Whether cuTile sees a constant without a type."""
        return self.weak or self.loose

    def known(self, allowed: Iterable[str]) -> bool:
        """Whether the type is certainly one of these."""
        return self.types <= frozenset(allowed)


@dataclass(frozen=True)
class Pointer:
    """An address, or a tile of them: elements from the first one of an array.

    Attributes:
        base: the parameter whose array it is; empty where it may be one of several.
        offset: what is known of the offset; None: the address is the array's first element.
    """

    base: str
    offset: Number | None = None


@dataclass(frozen=True)
class Type:
    """A data type as a value, as `tl.float32` or `y_ptr.dtype.element_ty`."""

    types: Types


@dataclass(frozen=True)
class Several:
    """A tuple."""

    items: tuple[Value, ...]


@dataclass(frozen=True)
class Other:
    """What only some statements take: a string, `None`, or what two branches leave different."""

    what: str


Value = Number | Pointer | Type | Several | Other


def number(*types: str, natural: bool = False) -> Number:
    """A tile or scalar of one of these types."""
    return Number(frozenset(types), natural=natural)


def weak(*types: str, natural: bool = False, bits: int = 0) -> Number:
    """A constant of the compilation."""
    return Number(frozenset(types), weak=True, natural=natural, bits=bits)


def literal(value: float) -> Number:
    """A literal, with the type that Triton gives it where it is assigned to a variable."""
    if isinstance(value, float):
        size = abs(value)
        odd = 0 < size < SMALLEST or LARGEST < size < math.inf
        return weak("float64" if odd else "float32")
    for kind, low, high in INTEGER_LITERALS:
        if low <= value < high:
            return weak(kind, natural=value >= 0, bits=abs(value).bit_length())
    return weak("uint64", natural=True, bits=abs(value).bit_length())


def token(name: str) -> str:
    """The type of what a parameter is given."""
    return TOKEN + name


def is_token(kind: str) -> bool:
    """Whether a type is known by its parameter only."""
    return kind[:1] in (TOKEN, SCALAR)


def possible(kind: str) -> tuple[str, ...]:
    """The names of cuda.tile that a type may stand for."""
    if kind.startswith(SCALAR):
        return OF_SCALARS
    return dtypes.ALL if kind.startswith(TOKEN) else (kind,)


def joined(one: Value, other: Value) -> Value:
    """What is known where a value is one or the other."""
    if one == other:
        return one
    match one, other:
        case Number(), Number():
            return Number(
                one.types | other.types,
                weak=one.weak and other.weak,
                loose=(one.constant or other.constant) and not (one.weak and other.weak),
                natural=one.natural and other.natural,
                bits=max(one.bits, other.bits) if one.natural and other.natural else 0,
            )
        case Pointer(), Pointer() if one.base == other.base:
            return Pointer(one.base, _joined_offsets(one.offset, other.offset))
        case Pointer(), Pointer():
            return Pointer("")
        case Type(), Type():
            return Type(one.types | other.types)
        case Several(), Several() if len(one.items) == len(other.items):
            return Several(tuple(map(joined, one.items, other.items)))
    return Other("a value of another kind in each branch")


def _joined_offsets(one: Number | None, other: Number | None) -> Number:
    zero = weak("int32", natural=True)
    found = joined(one or zero, other or zero)
    assert isinstance(found, Number)
    return found


def assigned_value(value: Value) -> Value:
    """What a variable holds: Triton makes a tensor of a plain constant."""
    match value:
        case Number(weak=True):
            return replace(value, weak=False, loose=True)
        case Several():
            return Several(tuple(map(assigned_value, value.items)))
    return value
