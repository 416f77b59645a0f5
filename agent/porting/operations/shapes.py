"""Tiles made of nothing, their shapes, and where a block is in the grid."""

from __future__ import annotations

from functools import partial

import libcst as cst

from agent.porting import terms
from agent.porting.arguments import Arguments
from agent.porting.context import TL
from agent.porting.expressions import Expressions, Handler
from agent.porting.terms import Phrase, atom
from agent.porting.values import Number, Type, number, weak


def _place(
    name: str, to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None
) -> Phrase:
    given = Arguments(to.context, call, ("axis",), receiver)
    axis = to.read(given["axis"])
    return atom(f"{to.context.tile}.{name}({axis.text})", number("int32", natural=True))


def _arange(to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None) -> Phrase:
    given = Arguments(to.context, call, ("start", "end"), receiver)
    start, end = to.number(given["start"]), to.number(given["end"])
    for each in (start, end):
        if not isinstance(each.value, Number) or not each.value.weak:
            raise to.context.refuse(
                call, "`tl.arange` of a variable", "its ends have to be constants"
            )
    ct = to.context.tile
    natural = isinstance(start.value, Number) and start.value.natural
    if start.text == "0":
        return atom(f"{ct}.arange({end.text}, dtype={ct}.int32)", number("int32", natural=True))
    size = f"{end.within(terms.SUM)} - {start.within(terms.PRODUCT)}"
    text = f"{ct}.arange({size}, dtype={ct}.int32, start={start.text})"
    return atom(text, number("int32", natural=natural))


def _full(to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None) -> Phrase:
    given = Arguments(to.context, call, ("shape", "value", "dtype"), receiver)
    kind = _kind(to, call, given["dtype"])
    shape = to.shape(given["shape"])
    value = to.number(given["value"])
    assert isinstance(value.value, Number)
    text, ct = value.text, to.context.tile
    if not value.value.constant and value.value.types != kind[1]:
        text = f"{ct}.astype({text}, {kind[0]})"
    known = Number(kind[1], natural=value.value.natural, bits=value.value.bits)
    return atom(f"{ct}.full({shape}, {text}, {kind[0]})", known)


def _zeros(to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None) -> Phrase:
    given = Arguments(to.context, call, ("shape", "dtype"), receiver)
    text, types = _kind(to, call, given["dtype"])
    shape = to.shape(given["shape"])
    return atom(f"{to.context.tile}.zeros({shape}, {text})", Number(types, natural=True))


def _zeros_like(to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None) -> Phrase:
    given = Arguments(to.context, call, ("input",), receiver)
    like = to.number(given["input"])
    if not isinstance(given["input"], cst.Name) or not isinstance(like.value, Number):
        raise to.context.refuse(call, "`tl.zeros_like` of an expression", "name a variable")
    text = f"{to.context.tile}.zeros({like.text}.shape, {like.text}.dtype)"
    return atom(text, Number(like.value.types, natural=True))


def _kind(to: Expressions, call: cst.Call, node: cst.BaseExpression) -> tuple[str, frozenset[str]]:
    kind = to.read(node)
    if not isinstance(kind.value, Type):
        raise to.context.refuse(
            call, "a data type as a parameter", "cuTile takes no types: name it in the kernel"
        )
    return kind.text, kind.value.types


def _reshape(
    name: str, to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None
) -> Phrase:
    """`reshape`, `view` and `broadcast_to`, whose shape may be spread over the arguments."""
    given = Arguments(to.context, call, ("input", "shape", "can_reorder"), receiver, spread="shape")
    operand = to.number(given["input"])
    assert isinstance(operand.value, Number)
    if len(given.spread) > 1:
        shape = f"({', '.join(to.number(each).text for each in given.spread)})"
    else:
        shape = to.shape(given["shape"])
    text = f"{to.context.tile}.{name}({operand.text}, {shape})"
    return atom(text, operand.value)


def _permute(
    name: str, to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None
) -> Phrase:
    """`tl.trans(x)` of two axes, `tl.trans(x, 1, 0)`, `tl.permute(x, (1, 0))`."""
    given = Arguments(to.context, call, ("input", "dims"), receiver, spread="dims")
    operand = to.number(given["input"])
    ct = to.context.tile
    if len(given.spread) > 1:
        axes = f"({', '.join(to.read(each).text for each in given.spread)})"
    elif given.get("dims") is not None:
        axes = to.shape(given["dims"])
    elif name == "trans":
        return atom(f"{ct}.transpose({operand.text})", operand.value)
    else:
        raise to.context.refuse(call, "`tl.permute` without its axes", "name them")
    return atom(f"{ct}.permute({operand.text}, {axes})", operand.value)


def _expand_dims(to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None) -> Phrase:
    given = Arguments(to.context, call, ("input", "axis"), receiver)
    operand, node = to.number(given["input"]), given["axis"]
    if isinstance(node, cst.Tuple | cst.List):
        raise to.context.refuse(call, "`tl.expand_dims` of several axes", "call it for each axis")
    text = f"{to.context.tile}.expand_dims({operand.text}, {to.read(node).text})"
    return atom(text, operand.value)


def _cdiv(to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None) -> Phrase:
    """`(x + (div - 1)) // div`, toward zero."""
    given = Arguments(to.context, call, ("x", "div"), receiver)
    x, y = to.number(given["x"]), to.number(given["div"])
    if all(isinstance(each.value, Number) and each.value.weak for each in (x, y)):
        text = f"-(-{x.within(terms.SIGN)} // {y.within(terms.SIGN)})"
        return Phrase(text, terms.SIGN, weak("int32", natural=True))
    natural = all(isinstance(each.value, Number) and each.value.natural for each in (x, y))
    one = atom("1", weak("int32", natural=True))
    below = to.arithmetic.binary(call, "-", y, one)
    assert isinstance(below.value, Number)
    if natural:  # a divisor is at least one
        below = below._replace(value=Number(below.value.types, below.value.weak, natural=True))
    total = to.arithmetic.binary(call, "+", x, below)
    return to.arithmetic.binary(call, "//", total, y)


OPERATIONS: dict[str, Handler] = {
    f"{TL}program_id": partial(_place, "bid"),
    f"{TL}num_programs": partial(_place, "num_blocks"),
    f"{TL}arange": _arange,
    f"{TL}full": _full,
    f"{TL}zeros": _zeros,
    f"{TL}zeros_like": _zeros_like,
    f"{TL}reshape": partial(_reshape, "reshape"),
    f"{TL}view": partial(_reshape, "reshape"),
    f"{TL}broadcast_to": partial(_reshape, "broadcast_to"),
    f"{TL}trans": partial(_permute, "trans"),
    f"{TL}permute": partial(_permute, "permute"),
    f"{TL}expand_dims": _expand_dims,
    f"{TL}cdiv": _cdiv,
    "triton.cdiv": _cdiv,
}
