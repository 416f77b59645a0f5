"""Functions of elements: casts, selections, and mathematics."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import libcst as cst

from agent.porting import dtypes, terms
from agent.porting.arguments import Arguments
from agent.porting.context import TL
from agent.porting.expressions import Expressions, Handler
from agent.porting.folding import as_tensor, folded, typed
from agent.porting.terms import Phrase, atom
from agent.porting.values import Number, Other, Type, Value, number, weak

UNARY = {
    name: name
    for name in (
        "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh",
        "floor", "ceil",
    )
} | {"sqrt_rn": "sqrt", "fast_expf": "exp", "fast_logf": "log", "fast_sinf": "sin",
     "fast_cosf": "cos", "fast_tanf": "tan", "fast_exp2f": "exp2"}  # fmt: skip
"""Of floats in at least fp32, the only ones that Triton takes; Triton's name -> cuTile's."""
QUOTIENTS = ("fdiv", "div_rn")


def _cast(to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None) -> Phrase:
    given = Arguments(
        to.context, call, ("input", "dtype", "fp_downcast_rounding", "bitcast"), receiver
    )
    given.only({"fp_downcast_rounding": ("'rtne'", '"rtne"')})
    kind = to.read(given["dtype"])
    operand = to.read(given["input"])
    if not isinstance(kind.value, Type):
        if isinstance(kind.value, Number) and kind.value.weak:
            raise to.context.refuse(
                call, "a data type as a parameter", "cuTile takes no types: name it in the kernel"
            )
        raise to.context.refuse(
            call, "a cast to a pointer", "pass a view of the tensor in that type"
        )
    ct = to.context.tile
    value = _as_number(to, call, operand.value)
    if given.flag("bitcast"):
        return atom(f"{ct}.bitcast({operand.text}, {kind.text})", Number(kind.value.types))
    if kind.value.types == {dtypes.BOOL}:
        if value.types == {dtypes.BOOL}:
            return operand
        text = f"{operand.within(terms.COMPARISON + 1)} != 0"
        return Phrase(text, terms.COMPARISON, number(dtypes.BOOL))
    if value.types == kind.value.types and len(value.types) == 1 and not value.constant:
        return operand
    natural = value.natural and kind.value.types <= {"int32", "int64"}
    text = f"{ct}.astype({operand.text}, {kind.text})"
    if value.constant:  # `ct.astype` leaves one without a type
        text = f"{ct}.full((), {operand.text}, {kind.text})"
    return atom(text, Number(kind.value.types, natural=natural, bits=value.bits))


def _unary(
    name: str, to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None
) -> Phrase:
    given = Arguments(to.context, call, ("x",), receiver)
    operand = to.number(given["x"])
    value = _as_number(to, call, operand.value)
    types = value.types & frozenset(dtypes.WIDE_FLOATS) or frozenset(dtypes.WIDE_FLOATS)
    if value.constant:
        operand = atom(typed(to.context.tile, operand.text, "float32"), value)
        types = frozenset(("float32",))
    return atom(f"{to.context.tile}.{name}({operand.text})", Number(types))


def _abs(to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None) -> Phrase:
    given = Arguments(to.context, call, ("x",), receiver)
    operand = to.number(given["x"])
    value = _as_number(to, call, operand.value)
    return atom(
        f"{to.context.tile}.abs({operand.text})", Number(value.types, value.weak, value.loose)
    )


def _sigmoid(to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None) -> Phrase:
    given = Arguments(to.context, call, ("x",), receiver)
    operand = to.number(given["x"])
    if _as_number(to, call, operand.value).constant:
        operand = as_tensor(to.context, call, operand)
    types = _as_number(to, call, operand.value).types & frozenset(dtypes.WIDE_FLOATS)
    text = f"1 / (1 + {to.context.tile}.exp(-{operand.within(terms.SIGN)}))"
    return Phrase(text, terms.PRODUCT, Number(types or frozenset(dtypes.WIDE_FLOATS)))


def _isnan(to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None) -> Phrase:
    given = Arguments(to.context, call, ("x",), receiver)
    operand = to.number(given["x"])
    return atom(f"{to.context.tile}.isnan({operand.text})", number(dtypes.BOOL))


def _extreme(
    name: str, to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None
) -> Phrase:
    """`tl.maximum(x, y)`; Python's `max(x, y)` is the same in a kernel."""
    given = Arguments(to.context, call, ("x", "y", "propagate_nan"), receiver)
    left, right = to.number(given["x"]), to.number(given["y"])
    return extreme_of(to, call, name, left, right, nan=_nan(to, given))


def extreme_of(
    to: Expressions, call: cst.Call, name: str, left: Phrase, right: Phrase, *, nan: str = ""
) -> Phrase:
    """The larger or smaller of two; weak where both are constants."""
    values = [_as_number(to, call, each.value) for each in (left, right)]
    if all(value.weak for value in values):
        python = {"maximum": "max", "minimum": "min"}[name]
        value = folded("//", *values)
        value = replace(value, types=values[0].types | values[1].types)
        return atom(f"{python}({left.text}, {right.text})", value)
    if all(value.constant for value in values):  # which the compiler would leave without a type
        left = as_tensor(to.context, call, left)
    left, right, kinds = to.arithmetic.promoted(call, left, right)
    some, every = (f(v.natural for v in values) for f in (any, all))
    natural = some if name == "maximum" else every
    text = f"{to.context.tile}.{name}({left.text}, {right.text}{nan})"
    return atom(text, Number(kinds, natural=natural, bits=max(v.bits for v in values)))


def _clamp(to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None) -> Phrase:
    given = Arguments(to.context, call, ("x", "min", "max", "propagate_nan"), receiver)
    nan = _nan(to, given)
    operands = [to.number(given[name]) for name in ("x", "min", "max")]
    low = extreme_of(to, call, "maximum", operands[0], operands[1], nan=nan)
    return extreme_of(to, call, "minimum", low, operands[2], nan=nan)


def _nan(to: Expressions, given: Arguments) -> str:
    node = given.get("propagate_nan")
    if node is None:
        return ""
    word = to.context.source.code(node).rpartition(".")[2]
    given.only({"propagate_nan": [to.context.source.code(node)] if word in ("ALL", "NONE") else []})
    return ", propagate_nan=True" if word == "ALL" else ""


def _where(to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None) -> Phrase:
    given = Arguments(to.context, call, ("condition", "x", "y"), receiver)
    condition = to.number(given["condition"])
    test = condition.text
    if _as_number(to, call, condition.value).types != {dtypes.BOOL}:
        test = f"{condition.within(terms.COMPARISON + 1)} != 0"
    left, right = to.number(given["x"]), to.number(given["y"])
    ones = [_as_number(to, call, each.value) for each in (left, right)]
    left, right, types = to.arithmetic.promoted(call, left, right)
    natural = all(one.natural for one in ones)
    text = f"{to.context.tile}.where({test}, {left.text}, {right.text})"
    return atom(text, Number(types, natural=natural, bits=max(one.bits for one in ones)))


def _fma(to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None) -> Phrase:
    given = Arguments(to.context, call, ("x", "y", "z"), receiver)
    x, y, z = (to.number(given[name]) for name in ("x", "y", "z"))
    to.context.note(call, "`tl.fma` becomes `x * y + z`, which the compiler fuses or rounds twice")
    return to.arithmetic.binary(call, "+", to.arithmetic.binary(call, "*", x, y), z)


def _divide(to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None) -> Phrase:
    given = Arguments(to.context, call, ("x", "y", "ieee_rounding"), receiver)
    x, y = to.number(given["x"]), to.number(given["y"])
    return to.arithmetic.binary(call, "/", x, y)


def _power(to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None) -> Phrase:
    given = Arguments(to.context, call, ("x", "y"), receiver)
    x, y = to.number(given["x"]), to.number(given["y"])
    if _as_number(to, call, x.value).constant and _as_number(to, call, y.value).constant:
        x = as_tensor(to.context, call, x)
    x, y, types = to.arithmetic.promoted(call, x, y)
    if not types <= frozenset(dtypes.WIDE_FLOATS):
        raise to.context.refuse(call, "`pow` of anything but fp32", "cast to fp32 before")
    return atom(f"{to.context.tile}.pow({x.text}, {y.text})", Number(types))


def _float(to: Expressions, call: cst.Call, _: cst.BaseExpression | None) -> Phrase:
    """`float("inf")`, of a constant."""
    given = Arguments(to.context, call, ("value",))
    node = given["value"]
    if isinstance(node, cst.SimpleString):
        word = str(node.evaluated_value).strip().lower()
        found = {"inf": "math.inf", "+inf": "math.inf", "-inf": "-math.inf", "nan": "math.nan"}
        if word in found:
            to.context.uses_math = True
            binding = terms.SIGN if found[word].startswith("-") else terms.ATOM
            return Phrase(found[word], binding, weak("float32"))
    raise to.context.refuse(call, "`float` of a value", "cast by `.to(tl.float32)`")


def _unchanged(to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None) -> Phrase:
    """`tl.multiple_of(x, 8)` and its like tell the compiler something of x."""
    given = Arguments(to.context, call, ("input", "values"), receiver)
    return to.read(given["input"])


def _nothing(why: str, to: Expressions, call: cst.Call, _: cst.BaseExpression | None) -> Phrase:
    """A call that computes nothing."""
    if why:
        to.context.note(call, why)
    return atom("", Other("nothing"))


def _static_assert(to: Expressions, call: cst.Call, _: cst.BaseExpression | None) -> Phrase:
    given = Arguments(to.context, call, ("cond", "msg"))
    condition = to.number(given["cond"])
    message = given.get("msg")
    said = f", {to.context.source.code(message)}" if message is not None else ""
    return atom(f"{to.context.tile}.static_assert({condition.text}{said})", Other("nothing"))


def _as_number(to: Expressions, call: cst.Call, value: Value) -> Number:
    if not isinstance(value, Number):
        raise to.context.refuse(call, "an address given to a function of numbers", "pass offsets")
    return value


OPERATIONS: dict[str, Handler] = {
    f"{TL}to": _cast,
    f"{TL}cast": _cast,
    **{f"{TL}{name}": partial(_unary, to) for name, to in UNARY.items()},
    **{f"{TL}{name}": _abs for name in ("abs", "fabs")},
    "abs": _abs,
    f"{TL}sigmoid": _sigmoid,
    f"{TL}isnan": _isnan,
    **{f"{TL}{name}": partial(_extreme, name) for name in ("maximum", "minimum")},
    "max": partial(_extreme, "maximum"),
    "min": partial(_extreme, "minimum"),
    f"{TL}clamp": _clamp,
    f"{TL}where": _where,
    f"{TL}fma": _fma,
    **{f"{TL}{name}": _divide for name in QUOTIENTS},
    f"{TL}pow": _power,
    "float": _float,
    **{f"{TL}{name}": _unchanged for name in ("multiple_of", "max_contiguous", "max_constancy")},
    f"{TL}assume": partial(_nothing, ""),
    f"{TL}static_print": partial(_nothing, ""),
    f"{TL}debug_barrier": partial(
        _nothing, "barriers are dropped: cuTile orders what a block does to one array"
    ),
    f"{TL}device_assert": partial(
        _nothing, "`tl.device_assert` is dropped: Triton leaves it out unless it debugs"
    ),
    f"{TL}static_assert": _static_assert,
}
