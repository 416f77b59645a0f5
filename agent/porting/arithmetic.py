"""Operators on tiles, scalars and addresses, where the languages agree and where they do not.

- Halves are divided in fp32 by Triton and in their own type by cuTile.
- `//` and `%` of integers go toward zero in Triton and down in cuTile.
- bf16 with an integer is fp32 in Triton and bf16 in cuTile.
- Booleans are numbers of one bit in Triton; cuTile does not compute with them.
- A variable that holds a plain constant is a tensor in Triton and a constant in cuTile.

Everything else that the two promote differently, cuTile refuses to compile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import product

import libcst as cst

from agent.porting import dtypes, terms
from agent.porting.context import Context
from agent.porting.folding import ODD, as_tensor, folded, kept_natural, negated, wide
from agent.porting.terms import Phrase
from agent.porting.values import (
    SCALAR,
    Number,
    Pointer,
    Type,
    Value,
    is_token,
    number,
    possible,
    weak,
)

OPERATORS: dict[type[cst.CSTNode], tuple[str, int]] = {
    cst.Add: ("+", terms.SUM),
    cst.Subtract: ("-", terms.SUM),
    cst.Multiply: ("*", terms.PRODUCT),
    cst.Divide: ("/", terms.PRODUCT),
    cst.FloorDivide: ("//", terms.PRODUCT),
    cst.Modulo: ("%", terms.PRODUCT),
    cst.BitAnd: ("&", terms.BIT_AND),
    cst.BitOr: ("|", terms.BIT_OR),
    cst.BitXor: ("^", terms.BIT_XOR),
    cst.LeftShift: ("<<", terms.SHIFT),
    cst.RightShift: (">>", terms.SHIFT),
}
AS_IT_IS = {
    "float32": ("float32", "float64"),
    "int32": ("int32", "int64", "float16", "float32", "float64"),
}
"""Type of a constant -> the types that it yields to in Triton when it is a tensor."""
Guard = frozenset[str]


class Arithmetic:
    """Operators within one function; gathers what has to hold of the types it is compiled for."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.guards: set[Guard] = set()
        """Parameters whose types may not be bf16 of one and an integer of another; of a single
        one, which may not be bf16."""

    # --- two operands ----------------------------------------------------------------------------

    def binary(self, node: cst.CSTNode, symbol: str, left: Phrase, right: Phrase) -> Phrase:
        """`left symbol right`.

        Raises:
            NotPortable: it has no equivalent.
        """
        binding = next(rank for text, rank in OPERATORS.values() if text == symbol)
        if isinstance(left.value, Pointer) or isinstance(right.value, Pointer):
            return self._address(node, symbol, left, right)
        one, other = self._number(node, left), self._number(node, right)
        if one.weak and other.weak:
            return self._written(symbol, binding, left, right, folded(symbol, one, other))
        if symbol == "/":
            return self._quotient(left, right, one, other)
        if symbol in ("//", "%"):
            return self._integral(node, symbol, binding, left, right)
        natural, bits = kept_natural(symbol, one, other)
        if one.constant and other.constant and (bits > 31 or symbol == "<<"):
            left = as_tensor(self.context, node, left)  # it wraps in Triton
        left, right, types = self.promoted(node, left, right)
        if types == {dtypes.BOOL} and symbol in ("*", "+", "-"):
            symbol, binding = self._logical(node, symbol)
        loose = _number_of(left).constant and _number_of(right).constant
        value = Number(types, False, loose, natural, bits)
        return self._written(symbol, binding, left, right, value)

    def _logical(self, node: cst.CSTNode, symbol: str) -> tuple[str, int]:
        """What multiplies booleans. Their sum is `^` when compiled and `|` in the interpreter."""
        if symbol != "*":
            raise self.context.refuse(node, f"`{symbol}` of booleans", "write `|`, `&` or `^`")
        return "&", terms.BIT_AND

    def promoted(
        self, node: cst.CSTNode, left: Phrase, right: Phrase
    ) -> tuple[Phrase, Phrase, frozenset[str]]:
        """Both operands so that cuTile computes in the type that Triton computes in, and that type.

        Notes what has to hold of parameters where it depends on their types.
        """
        left, right = self._hardened(node, left, right), self._hardened(node, right, left)
        one, other = self._number(node, left), self._number(node, right)
        mixed = False
        types: set[str] = set()
        for a, b in product(sorted(one.types), sorted(other.types)):
            if is_token(a) or is_token(b):
                types |= self._with_token(node, a, b, one.constant, other.constant)
                continue
            constants = one.constant, other.constant
            common = _computed_in(dtypes.triton_type, a, b, *constants)
            in_tile = _computed_in(dtypes.tile_type, a, b, *constants)
            alone = one.types == {a} and other.types == {b}
            if alone and in_tile == dtypes.ERROR and common in dtypes.INTEGERS:
                left, right = self.cast(left, common), self.cast(right, common)  # of one sign
            differs = in_tile not in (common, dtypes.ERROR)
            mixed |= differs
            types.add(common or a)
        if mixed:
            left, right = self.cast(left, "float32"), self.cast(right, "float32")
            types = {"float32"}
        return left, right, frozenset(types)

    def _with_token(
        self, node: cst.CSTNode, a: str, b: str, a_constant: bool, b_constant: bool
    ) -> set[str]:
        """What two types give of which one is not known before the kernel is compiled."""
        if a == b:
            return {a}
        if a_constant or b_constant:
            kind, constant = (a, b) if b_constant else (b, a)
            if is_token(constant):
                raise self.context.refuse(
                    node,
                    "a constant whose type depends on an array",
                    "begin with `tl.full((), x, tl.float32)`",
                )
            return {kind} | ({"float32"} if constant == "float32" else set())
        if _may_differ(a, b):
            self.guards.add(frozenset(t for t in (a, b) if is_token(t) or t == "bfloat16"))
        if is_token(a) and is_token(b):
            return {a, b}
        kind, known = (a, b) if is_token(a) else (b, a)
        if known in (*dtypes.INTEGERS, dtypes.BOOL) and not kind.startswith(SCALAR):
            return {kind, known}
        return {dtypes.triton_type(x, known) or known for x in possible(kind)}

    def _hardened(self, node: cst.CSTNode, term: Phrase, other: Phrase) -> Phrase:
        """A variable of a constant, as the tensor that it is in Triton, where that matters."""
        value, partner = term.value, other.value
        if not isinstance(value, Number) or not isinstance(partner, Number):
            return term
        if not value.constant:
            return term
        if partner.constant or value.weak:
            alone = partner.constant or partner.known((dtypes.BOOL,))
            odd = not value.types.isdisjoint(ODD)
            return as_tensor(self.context, node, term) if odd and alone else term
        yields = (AS_IT_IS.get(kind, ()) for kind in value.types)
        if value.types == {dtypes.BOOL} or all(map(partner.known, yields)):
            return term
        return as_tensor(self.context, node, term)

    def cast(self, term: Phrase, kind: str) -> Phrase:
        """A value as another type."""
        value = term.value
        if isinstance(value, Number) and value.types == {kind} and not value.constant:
            return term
        ct = self.context.tile
        assert isinstance(value, Number)
        natural = value.natural and kind in ("int32", "int64")
        known = Number(frozenset((kind,)), natural=natural, bits=value.bits)
        return terms.atom(f"{ct}.astype({term.text}, {ct}.{kind})", known)

    def _quotient(self, left: Phrase, right: Phrase, one: Number, other: Number) -> Phrase:
        narrow = (*dtypes.HALVES, *dtypes.BYTE_FLOATS)
        may_be_narrow = any(
            kind in narrow for each in (one, other) for t in each.types for kind in possible(t)
        )
        wide = one.known(dtypes.WIDE_FLOATS) and not one.constant
        wide |= other.known(dtypes.WIDE_FLOATS) and not other.constant
        if may_be_narrow and not wide:
            if one.constant:
                right = self._widened(right, other)
            else:
                left = self._widened(left, one)
        double = any("float64" in possible(t) for each in (one, other) for t in each.types)
        types = frozenset(("float32", "float64") if double else ("float32",))
        loose = one.constant and other.constant
        return self._written("/", terms.PRODUCT, left, right, Number(types, loose=loose))

    def _widened(self, term: Phrase, value: Number) -> Phrase:
        if value.known((*dtypes.HALVES, *dtypes.INTEGERS, dtypes.BOOL)):
            return self.cast(term, "float32")
        return terms.atom(f"{self.context.helper('wide')}({term.text})", value)

    def _integral(
        self, node: cst.CSTNode, symbol: str, binding: int, left: Phrase, right: Phrase
    ) -> Phrase:
        """`//` and `%`, which go toward zero in Triton."""
        one, other = self._number(node, left), self._number(node, right)
        if one.constant and other.constant:  # and one of them a variable
            left = as_tensor(self.context, node, left)
        left, right, types = self.promoted(node, left, right)
        one, other = self._number(node, left), self._number(node, right)
        if symbol == "%" and types <= frozenset(dtypes.FLOATS):
            raise self.context.refuse(
                node, "the remainder of floats", "write it as `x - y * tl.floor(x / y)`"
            )
        integers = types - frozenset((*dtypes.FLOATS, *dtypes.BYTE_FLOATS)) or types
        natural, bits = kept_natural(symbol, one, other)
        value = Number(integers, natural=natural, bits=bits)
        certain = all(not is_token(t) for t in types) or symbol == "//"
        if symbol == "%":
            natural = natural or integers <= frozenset(dtypes.UNSIGNED)
        elif not integers.isdisjoint(dtypes.UNSIGNED):
            natural = False  # cuTile has no `//` of them
        if natural and certain:
            return self._written(symbol, binding, left, right, value)
        name = self.context.helper("quotient" if symbol == "//" else "remainder")
        return terms.atom(f"{name}({left.text}, {right.text})", value)

    # --- addresses -------------------------------------------------------------------------------

    def _address(self, node: cst.CSTNode, symbol: str, left: Phrase, right: Phrase) -> Phrase:
        """An address and an offset: the sum of what was added to the first one, in 64 bits."""
        swapped = isinstance(right.value, Pointer)
        if swapped and isinstance(left.value, Pointer):
            raise self.context.refuse(node, "the difference of two addresses", "pass the offset")
        if symbol not in ("+", "-") or (swapped and symbol == "-"):
            raise self.context.refuse(
                node, f"`{symbol}` of an address", "only offsets can be added to one"
            )
        pointer, offset = (right, left) if swapped else (left, right)
        assert isinstance(pointer.value, Pointer)
        added = self._number(node, offset)
        integers = added.types - frozenset(dtypes.FLOATS)
        added = replace(added, types=integers or added.types)
        if added.known((*dtypes.FLOATS, *dtypes.BYTE_FLOATS)):
            raise self.context.refuse(node, "an address plus a float", "add an integer")
        base = pointer.value.base
        if pointer.value.offset is None:
            if symbol == "-":
                minus = self.cast(offset, "int64") if not added.weak else offset
                text = f"-{minus.within(terms.SIGN)}"
                return Phrase(text, terms.SIGN, Pointer(base, replace(added, natural=False)))
            return Phrase(offset.text, offset.binding, Pointer(base, added))
        before = self.in_64_bits(
            Phrase(pointer.text, pointer.binding, pointer.value.offset), offset
        )
        after = offset
        if not isinstance(before.value, Number) or before.value.constant:
            after = self.in_64_bits(offset, before)
        first, second = (after, before) if swapped else (before, after)
        types = frozenset(("int64",))
        weak_sum = pointer.value.offset.weak and added.weak
        natural = pointer.value.offset.natural and added.natural and symbol == "+"
        value = Number(types, weak_sum, False, natural)
        text = f"{first.within(terms.SUM)} {symbol} {second.within(terms.SUM + 1)}"
        return Phrase(text, terms.SUM, Pointer(base, value))

    def in_64_bits(self, term: Phrase, other: Phrase | None = None) -> Phrase:
        """An offset in 64 bits, where it is to be added to: Triton adds to 64-bit addresses."""
        value = term.value
        assert isinstance(value, Number)
        if value.weak and other is not None:
            return term
        if value.known(("int64", "uint64", *dtypes.FLOATS)) and not value.constant:
            return term  # what may be a float is none where it is added to an address
        if value.constant:
            return wide(self.context.tile, term.text, value)
        return self.cast(term, "int64")

    # --- one operand, comparisons ----------------------------------------------------------------

    def compared(self, node: cst.CSTNode, symbol: str, left: Phrase, right: Phrase) -> Phrase:
        """`left symbol right`, a boolean."""
        if isinstance(left.value, Type) and isinstance(right.value, Type):
            return self._written(symbol, terms.COMPARISON, left, right, weak(dtypes.BOOL))
        one, other = self._number(node, left), self._number(node, right)
        if one.weak and other.weak:
            return self._written(symbol, terms.COMPARISON, left, right, weak(dtypes.BOOL))
        left, right, _ = self.promoted(node, left, right)
        return self._written(symbol, terms.COMPARISON, left, right, number(dtypes.BOOL))

    def unary(self, node: cst.CSTNode, symbol: str, operand: Phrase) -> Phrase:
        """`-x`, `+x`, `~x` and `not x`."""
        value = self._number(node, operand)
        if symbol == "not":
            text = f"not {operand.within(terms.NOT)}"
            result = weak(dtypes.BOOL) if value.weak else number(dtypes.BOOL)
            return Phrase(text, terms.NOT, result)
        text = f"{symbol}{operand.within(terms.SIGN)}"
        return Phrase(text, terms.SIGN, negated(value, symbol))

    def _number(self, node: cst.CSTNode, term: Phrase) -> Number:
        return as_number(self.context, node, term.value)

    def _written(
        self, symbol: str, binding: int, left: Phrase, right: Phrase, value: Value
    ) -> Phrase:
        first = left.within(binding + (binding == terms.COMPARISON))
        return Phrase(f"{first} {symbol} {right.within(binding + 1)}", binding, value)


def as_number(context: Context, node: cst.CSTNode, value: Value) -> Number:
    """The value as a tile or scalar.

    Raises:
        NotPortable: it is none.
    """
    if isinstance(value, Number):
        return value
    kind = {Pointer: "an address", Type: "a data type"}.get(type(value), "no tile")
    if isinstance(value, Pointer):
        raise context.refuse(node, "an address used as a number", "compute with offsets instead")
    raise context.refuse(node, f"{kind} used as a number", "use a tile or a scalar here")


def guard_texts(context: Context, guards: set[Guard]) -> Iterator[str]:
    """The assertions of the port that hold the types to what was translated."""
    ct = context.tile
    for guard in sorted(guards, key=sorted):
        kinds = sorted(f"{t[1:]}.dtype" if is_token(t) else f"{ct}.{t}" for t in guard)
        if len(kinds) == 1:
            condition = f"{kinds[0]} != {ct}.bfloat16"
        else:
            condition = f"{context.helper('alike')}({kinds[0]}, {kinds[1]})"
        yield f'{ct}.static_assert({condition}, "Triton computes bf16 with integers in fp32")'


@cache
def _may_differ(a: str, b: str) -> bool:
    """Whether the languages compute two types in another one, for some that they may stand for."""
    return any(
        dtypes.tile_type(x, y) not in (dtypes.triton_type(x, y), dtypes.ERROR)
        for x, y in product(possible(a), possible(b))
    )


def _number_of(term: Phrase) -> Number:
    assert isinstance(term.value, Number)
    return term.value


def _computed_in(
    language: Callable[[str, str], str], a: str, b: str, a_constant: bool, b_constant: bool
) -> str:
    """What a language computes two known types in; a constant yields to a tile of its kind.

    Args:
        language: `dtypes.triton_type` or `dtypes.tile_type`.
        a: a type.
        b: another one.
        a_constant: it is that of a constant.
        b_constant: likewise.
    """
    if a_constant != b_constant:
        constant, tile = (a, b) if a_constant else (b, a)
        if dtypes.family(constant) <= dtypes.family(tile):
            return tile
    return language(a, b)
