"""Loads and stores: an address is an array and the index of its elements, which nobody checks.

`ct.gather` and `ct.scatter` compare indices with the array's end and leave out what is beyond.
Triton does not, and an address below the pointer is legal there, hence `check_bounds=False`.
"""

from __future__ import annotations

import libcst as cst

from agent.porting.arguments import Arguments
from agent.porting.context import TL
from agent.porting.expressions import Expressions, Handler
from agent.porting.terms import Phrase, atom
from agent.porting.values import Number, Other, number, token

HINTS = {"cache_modifier": "cache hints", "eviction_policy": "cache hints"}
SMALL = 2**8
"""Every type of elements holds the integers up to here, so that they need no type of their own."""


def _load(to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None) -> Phrase:
    given = Arguments(
        to.context,
        call,
        (
            "pointer", "mask", "other", "boundary_check", "padding_option", "cache_modifier",
            "eviction_policy", "volatile",
        ),
        receiver,
    )  # fmt: skip
    _access(to, call, given)
    base, index, _ = to.pointer(given["pointer"])
    ct = to.context.tile
    parts = [base, index]
    mask = _mask(to, given)
    if mask is not None:
        parts.append(f"mask={mask}")
        other = given.get("other")
        if other is not None:
            parts.append(f"padding_value={_padding(to, other, base)}")
    parts.append("check_bounds=False")
    return atom(f"{ct}.gather({', '.join(parts)})", number(token(base)))


def _store(to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None) -> Phrase:
    given = Arguments(
        to.context,
        call,
        ("pointer", "value", "mask", "boundary_check", "cache_modifier", "eviction_policy"),
        receiver,
    )
    _access(to, call, given)
    base, index, _ = to.pointer(given["pointer"])
    to.stored.add(base)
    parts = [base, index, converted(to, given["value"], base)]
    mask = _mask(to, given)
    if mask is not None:
        parts.append(f"mask={mask}")
    parts.append("check_bounds=False")
    return atom(f"{to.context.tile}.scatter({', '.join(parts)})", Other("nothing"))


def converted(to: Expressions, node: cst.BaseExpression, base: str) -> str:
    """A value in the type of an array's elements, which Triton casts to and cuTile does not."""
    value = to.number(node)
    assert isinstance(value.value, Number)
    if value.value.types == {token(base)} and not value.value.constant:
        return value.text
    return f"{to.context.tile}.astype({value.text}, {base}.dtype)"


def _access(to: Expressions, call: cst.Call, given: Arguments) -> None:
    """Refuse what makes an access another one, and tell which hints are dropped."""
    if given.get("boundary_check") is not None or given.get("padding_option") is not None:
        raise to.context.refuse(
            call, "a block pointer", "write the load with pointers and a mask, or a descriptor"
        )
    if "volatile" in given.given and given.flag("volatile"):
        raise to.context.refuse(
            call, "a volatile load", "it waits for other programs: port it by hand"
        )
    for name, what in HINTS.items():
        if given.get(name) is not None:
            to.context.note(call, f"{what} are dropped: cuTile has none")


def _mask(to: Expressions, given: Arguments) -> str | None:
    node = given.get("mask")
    if node is None or (isinstance(node, cst.Name) and node.value == "True"):
        return None
    return to.number(node).text


def _padding(to: Expressions, node: cst.BaseExpression, base: str) -> str:
    """What masked elements are. A small whole number is one for arrays of integers too."""
    value = to.number(node)
    assert isinstance(value.value, Number)
    whole = _whole(node)
    if whole is not None:
        return str(whole)
    if value.value.weak:
        return value.text
    if value.value.types == {token(base)} and not value.value.constant:
        return value.text
    return f"{to.context.tile}.astype({value.text}, {base}.dtype)"


def _whole(node: cst.BaseExpression) -> int | None:
    sign = 1
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        sign, node = -1, node.expression
    if isinstance(node, cst.Float | cst.Integer):
        value = node.evaluated_value
        if value < SMALL and value == int(value) and (sign == 1 or value):
            return sign * int(value)
    return None


OPERATIONS: dict[str, Handler] = {f"{TL}load": _load, f"{TL}store": _store}
