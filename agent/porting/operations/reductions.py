"""Reductions and scans, which Triton widens in its own way, and products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import libcst as cst

from agent.porting import dtypes
from agent.porting.arguments import Arguments
from agent.porting.context import TL
from agent.porting.expressions import Expressions, Handler
from agent.porting.terms import Phrase, atom
from agent.porting.values import Number, Several, Value, number, possible

SUM_WIDENS = (dtypes.BOOL, "int8", "int16", "uint8", "uint16")
MAX_WIDENS = (*SUM_WIDENS, *dtypes.HALVES)
DOT_ROUNDS = "computed in fp32, without tensor cores, where Triton's default is tf32"


def _sum(name: str, to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None) -> Phrase:
    given = Arguments(to.context, call, ("input", "axis", "keep_dims", "dtype"), receiver)
    operand = _wide(to, to.number(given["input"]), "wide_for_sum", SUM_WIDENS)
    dtype = given.get("dtype")
    if dtype is not None:
        kind = to.read(dtype)
        text = f"{to.context.tile}.astype({operand.text}, {kind.text})"
        operand = atom(text, Number(getattr(kind.value, "types", frozenset())))
    return _reduced(to, name, operand, given)


def _extreme(
    name: str, to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None
) -> Phrase:
    """`tl.max`, also of two values, which is Python's."""
    given = Arguments(
        to.context,
        call,
        ("input", "axis", "return_indices", "return_indices_tie_break_left", "keep_dims"),
        receiver,
    )
    operand = to.number(given["input"])
    if given.flag("return_indices"):
        return _with_indices(name, to, call, given, operand)
    return _reduced(to, name, _wide(to, operand, "wide_for_max", MAX_WIDENS), given)


def _with_indices(
    name: str, to: Expressions, call: cst.Call, given: Arguments, operand: Phrase
) -> Phrase:
    """Two reductions: cuTile has none that gives both."""
    value = operand.value
    assert isinstance(value, Number)
    if not isinstance(given["input"], cst.Name) or not value.known(("float32", "int32")):
        raise to.context.refuse(
            call, f"`tl.{name}` with `return_indices`", "reduce a variable that is cast to fp32"
        )
    ct, axis = to.context.tile, _axis(to, given)
    texts = [f"{ct}.{each}({operand.text}{axis})" for each in (name, f"arg{name}")]
    return atom(f"({', '.join(texts)})", Several((Number(value.types), number("int32"))))


def _index_of_extreme(
    name: str, to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None
) -> Phrase:
    given = Arguments(to.context, call, ("input", "axis", "tie_break_left", "keep_dims"), receiver)
    operand = to.number(given["input"])
    text = f"{to.context.tile}.{name}({operand.text}{_axis(to, given)})"
    return atom(text, number("int32", natural=True))


def _reduced(to: Expressions, name: str, operand: Phrase, given: Arguments) -> Phrase:
    value = operand.value
    assert isinstance(value, Number)
    text = f"{to.context.tile}.{name}({operand.text}{_axis(to, given)})"
    natural = value.natural and name != "sum"  # which may wrap
    return atom(text, Number(value.types, natural=natural, bits=value.bits))


def _axis(to: Expressions, given: Arguments) -> str:
    node = given.get("axis")
    text = f", axis={to.read(node).text}" if node is not None else ""
    return text + (", keepdims=True" if given.flag("keep_dims") else "")


def _scan(
    name: str, to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None
) -> Phrase:
    given = Arguments(to.context, call, ("input", "axis", "reverse", "dtype"), receiver)
    given.only({"dtype": ()})
    operand = _wide(to, to.number(given["input"]), "wide_for_sum", SUM_WIDENS)
    value = operand.value
    assert isinstance(value, Number)
    node = given.get("axis")
    axis = to.read(node).text if node is not None else "0"
    back = ", reverse=True" if given.flag("reverse") else ""
    text = f"{to.context.tile}.{name}({operand.text}, axis={axis}{back})"
    return atom(text, Number(value.types))


def _wide(to: Expressions, operand: Phrase, helper: str, short: tuple[str, ...]) -> Phrase:
    """The operand in the type that Triton reduces in."""
    value = operand.value
    assert isinstance(value, Number)
    kinds = {kind for each in value.types for kind in possible(each)}
    if not kinds & set(short):
        return operand
    if value.types == {dtypes.BOOL}:  # an unsigned integer of one bit
        return to.arithmetic.cast(operand, "uint32" if helper == "wide_for_sum" else "int32")
    if helper == "wide_for_max" and value.known(dtypes.HALVES):
        return to.arithmetic.cast(operand, "float32")
    others = {"uint32"} if helper == "wide_for_sum" else {"float32"}
    widened = Number(value.types | {"int32"} | others, natural=value.natural, bits=value.bits)
    return atom(f"{to.context.helper(helper)}({operand.text})", widened)


# --- products --------------------------------------------------------------------------------


DOT_PARAMETERS = (
    "input", "other", "acc", "input_precision", "allow_tf32", "max_num_imprecise_acc", "out_dtype",
)  # fmt: skip


def dot(
    to: Expressions,
    call: cst.Call,
    receiver: cst.BaseExpression | None = None,
    added_to: Phrase | None = None,
) -> Phrase:
    """`tl.dot`; `added_to`: the accumulator of `acc += tl.dot(x, y)`."""
    given = Arguments(to.context, call, DOT_PARAMETERS, receiver)
    given.only({"out_dtype": ("tl.float32", "tl.int32")})  # what products have anyway
    left, right = to.number(given["input"]), to.number(given["other"])
    values = [each.value for each in (left, right)]
    kinds = {k for v in values if isinstance(v, Number) for t in v.types for k in possible(t)}
    if not _exact(given):
        _note_fp32(to, call, values)
    results = {"int32" if "int" in kind else kind for kind in kinds if "int" in kind}
    if kinds & {*dtypes.HALVES, *dtypes.BYTE_FLOATS, "float32"}:
        results.add("float32")
    if "float64" in kinds:
        results.add("float64")
    accumulator = given.get("acc")
    ct = to.context.tile
    into = to.number(accumulator) if accumulator is not None else added_to
    if into is None:
        name = to.context.helper("dot")
        return atom(f"{name}({left.text}, {right.text})", number(*results))
    kind = into.value
    assert isinstance(kind, Number)
    if kind.constant:
        raise to.context.refuse(
            call, "`tl.dot` added to a constant", "begin with `tl.zeros` of the product's shape"
        )
    if kind.known(("float16",)):
        raise to.context.refuse(
            call, "`tl.dot` added to fp16", "accumulate in fp32, as the product itself does"
        )
    return atom(f"{ct}.mma({left.text}, {right.text}, {into.text})", Number(kind.types))


def _note_fp32(to: Expressions, call: cst.Call, operands: Sequence[Value]) -> None:
    """Tell of a product of fp32; both operands of one have the same type."""
    kinds = [each.types if isinstance(each, Number) else frozenset() for each in operands]
    if not all(any("float32" in possible(kind) for kind in each) for each in kinds):
        return
    if frozenset(("float32",)) in kinds:
        to.context.note(call, f"products of fp32 tiles are {DOT_ROUNDS}")
    else:
        to.context.note(call, f"where the operands of a product are fp32, it is {DOT_ROUNDS}")


def _exact(given: Arguments) -> bool:
    """Whether the source asks for the products of fp32 that the port has."""
    precision = given.get("input_precision")
    if isinstance(precision, cst.SimpleString) and precision.evaluated_value == "ieee":
        return True
    tf32 = given.get("allow_tf32")
    return isinstance(tf32, cst.Name) and tf32.value == "False"


OPERATIONS: dict[str, Handler] = {
    f"{TL}sum": partial(_sum, "sum"),
    **{f"{TL}{name}": partial(_extreme, name) for name in ("max", "min")},
    **{f"{TL}{name}": partial(_index_of_extreme, name) for name in ("argmax", "argmin")},
    **{f"{TL}{name}": partial(_scan, name) for name in ("cumsum", "cumprod")},
    f"{TL}dot": dot,
}
