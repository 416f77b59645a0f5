"""Constants: what Python's operators make of them, and the tensors that Triton makes of those.

cuTile has no type for a constant until it meets a tile. `ct.full((), 2.0, ct.float32)` gives it
one; `ct.astile` and `ct.astype` do not where the constant would have that type by itself.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import libcst as cst

from agent.porting import dtypes, terms
from agent.porting.context import Context
from agent.porting.terms import Phrase
from agent.porting.values import Number, number

KEEPS_NATURAL = ("+", "*", "//", "%", "&", ">>")
LOGICAL = ("&", "|", "^")
LARGE = 16
"""Bits of a literal that offsets are not multiplied with: hashes and random numbers are."""
ANY_INTEGER = ("int32", "uint32", "int64")
ODD = ("uint32", "int64", "uint64", "float64")
"""Types that Triton gives to large literals only."""


def folded(symbol: str, one: Number, other: Number) -> Number:
    """What an operator makes of two constants, as Python has it."""
    natural, bits = kept_natural(symbol, one, other)
    types: set[str] = set()
    for a, b in product(one.types, other.types):
        if symbol == "/" or dtypes.family(a) == 2 or dtypes.family(b) == 2:
            types.add("float32")
        elif a == b == dtypes.BOOL and symbol in LOGICAL:
            types.add(a)
        elif a in ODD or b in ODD or bits > 31 or symbol == "<<":
            types.update(ANY_INTEGER)
        else:
            types.add("int32")
    return Number(frozenset(types), weak=True, natural=natural, bits=bits)


def negated(value: Number, symbol: str) -> Number:
    """What `-`, `+` and `~` make of a number."""
    types = value.types
    if value.constant and symbol != "+" and not types.isdisjoint((*ODD, dtypes.BOOL)):
        types = types - {*ODD, dtypes.BOOL} | {"int32", "int64"}
    if "float64" in value.types:
        types = value.types
    return replace(value, types=types, natural=value.natural and symbol == "+")


def kept_natural(symbol: str, one: Number, other: Number) -> tuple[bool, int]:
    """Whether a result is known not to be negative, and the bits of the literals that it was
    multiplied with. What may wrap, as a hash does, is not known."""
    bits = one.bits + other.bits if symbol == "*" else max(one.bits, other.bits)
    if symbol in ("//", "%", ">>"):
        bits = one.bits if symbol != "%" else other.bits
    natural = one.natural and other.natural and symbol in KEEPS_NATURAL
    if symbol in ("+", "*") and not (one.weak and other.weak):
        natural = natural and bits <= LARGE and (symbol == "+" or one.constant or other.constant)
    if symbol == "&":
        natural = one.natural or other.natural
    return natural, bits


def as_tensor(context: Context, node: cst.CSTNode, term: Phrase) -> Phrase:
    """A constant as the tensor that Triton makes of it.

    Raises:
        NotPortable: it is a double, which cuTile's constants are not.
    """
    value, ct = term.value, context.tile
    assert isinstance(value, Number)
    if "float64" in value.types and (value.weak or len(value.types) == 1):
        raise context.refuse(
            node, "a variable with a number out of fp32's range",
            "write a number that fp32 holds", term.text,
        )  # fmt: skip
    known = replace(value, weak=False, loose=False)
    if len(value.types) == 1:
        return terms.atom(typed(ct, term.text, *value.types), known)
    return terms.atom(f"{context.helper('typed')}({term.text})", known)


def typed(tile: str, text: str, kind: str) -> str:
    """A scalar with a type; `kind` is one of cuTile's names."""
    return f"{tile}.full((), {text}, {tile}.{kind})"


def wide(tile: str, text: str, value: Number) -> Phrase:
    """A constant in 64 bits."""
    return terms.atom(typed(tile, text, "int64"), number("int64", natural=value.natural))
