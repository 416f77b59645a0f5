"""Faults of what a kernel computes: precision, operands, terms, reductions, constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst

from agent.syntax import assigned, descendants, keyword, positional
from benchmarks.mutation_code import (
    CT,
    DIALECTS,
    TL,
    KernelCode,
    Place,
    attribute,
    becomes,
    with_arguments,
)

CONSTANT_FACTOR = 1.03
"""Slightly: more than the rounding of bf16, less than anybody would notice in a plot."""
OPPOSITES = {"max": "min", "maximum": "minimum", "min": "max", "minimum": "maximum", "sum": "max"}

# --- precision ----------------------------------------------------------------------------------


def half_accumulator(code: KernelCode) -> Iterator[Place]:
    """What is added up is kept in fp16, from one step to the next."""
    for statement in descendants(code.body, cst.Assign):
        match statement:
            case cst.Assign(
                targets=[cst.AssignTarget(target=cst.Name(value=name))], value=cst.Call() as call
            ) if call in set(code.find(code.dialect.accumulators)):
                kind = keyword(call, "dtype")
                if isinstance(kind, cst.Attribute) and kind.attr.value == "float32":
                    steps = [v for t, v in assigned(code.body) if _is(t, name) and v is not call]
                    half = code.source.code(kind).replace("float32", "float16")
                    more = {value: _rounded(code, value, name, half) for value in steps}
                    yield Place(kind, attribute("float16"), more)


def _is(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name


def _rounded(
    code: KernelCode, value: cst.BaseExpression, name: str, half: str
) -> Callable[[cst.CSTNode], cst.BaseExpression]:
    """The edit that casts one step of an accumulation; a dot still adds up in fp32."""
    cast = "astype" if code.dialect is DIALECTS["cutile"] else "to"
    text = code.text(value)
    if isinstance(value, cst.Call) and value in set(code.find(code.dialect.dots)):
        whole = half.replace("float16", "float32")
        given = [code.source.code(each) for each in positional(value)]
        given = [f"{each}.{cast}({whole})" if each == name else each for each in given]
        text = f"{code.source.code(value.func)}({', '.join(given)})"
    return becomes(f"{text}.{cast}({half})")


def _upcasts(code: KernelCode) -> Iterator[tuple[cst.Call, cst.BaseExpression, cst.Attribute]]:
    """`x.to(tl.float32)`: the call, what is cast, and the type."""
    for call in descendants(code.body, cst.Call):
        match call:
            case cst.Call(
                func=cst.Attribute(value=value, attr=cst.Name(value="to" | "astype")),
                args=[cst.Arg(value=cst.Attribute(attr=cst.Name(value="float32")) as kind)],
            ):
                yield call, value, kind


def upcast_removed(code: KernelCode) -> Iterator[Place]:
    """Arithmetic in the type of the input."""
    for call, value, _ in _upcasts(code):
        yield Place(call, becomes(code.text(value)))


def upcast_to_half(code: KernelCode) -> Iterator[Place]:
    """Arithmetic in fp16, whatever the input is."""
    for _, _, kind in _upcasts(code):
        yield Place(kind, attribute("float16"))


# --- values -------------------------------------------------------------------------------------


def operands_swapped(code: KernelCode) -> Iterator[Place]:
    """`a - b`, `a / b`, a product of matrices or the branches of a choice, the other way round."""
    for node in code.values(cst.Subtract, cst.Divide):
        sign = "-" if isinstance(node.operator, cst.Subtract) else "/"
        yield Place(node, becomes(f"({code.text(node.right)} {sign} {code.text(node.left)})"))
    for call in code.find(code.dialect.dots):
        yield Place(call, with_arguments(1, 0))
    for call in code.find((f"{TL}where", f"{CT}where")):
        yield Place(call, with_arguments(0, 2, 1))


def eps_dropped(code: KernelCode) -> Iterator[Place]:
    """`x + eps` without eps."""
    for node in code.values(cst.Add):
        if code.text(node.right) == "eps":
            yield Place(node, becomes(code.text(node.left)))


def factor_dropped(code: KernelCode) -> Iterator[Place]:
    """A product without one of its factors: a scale, a weight, a correction."""
    for node in code.values(cst.Multiply):
        yield Place(node, becomes(code.text(node.left)))
        yield Place(node, becomes(code.text(node.right)))


def divisor_dropped(code: KernelCode) -> Iterator[Place]:
    """A quotient without its divisor."""
    for node in code.values(cst.Divide):
        yield Place(node, becomes(code.text(node.left)))


def term_dropped(code: KernelCode) -> Iterator[Place]:
    """A sum without its last term: a bias, the maximum that keeps exp small."""
    for node in code.values(cst.Add, cst.Subtract):
        if code.text(node.right) != "eps":
            yield Place(node, becomes(code.text(node.left)))


def accumulation_lost(code: KernelCode) -> Iterator[Place]:
    """`total += x` keeps the last x only."""
    for node in descendants(code.body, cst.AugAssign):
        if isinstance(node.operator, cst.AddAssign) and not code.is_index(node.target):
            yield Place(node, _assign)
    for call in code.find((f"{TL}dot",)):
        if len(positional(call)) == 3:
            yield Place(call, lambda c: c.with_changes(args=[*c.args[:1], _last(c.args[1])]))


def start_wrong(code: KernelCode) -> Iterator[Place]:
    """A running maximum that begins with 0, or a sum that begins with 1."""
    starts = [n.value for n in descendants(code.body, cst.Assign)]
    starts += [v for c in code.find(code.dialect.accumulators) for v in positional(c)[1:2]]
    for value in starts:
        text = code.source.code(value)
        if text in ('-float("inf")', "-math.inf", "0.0"):
            yield Place(value, becomes("1.0" if text == "0.0" else "0.0"))


def axis_wrong(code: KernelCode) -> Iterator[Place]:
    """A reduction over the other axis of a matrix."""
    for call in code.find(code.dialect.reductions):
        axis = keyword(call, "axis")
        if axis is not None and code.source.code(axis) == "1":
            yield Place(axis, becomes("0"))


def reduction_changed(code: KernelCode) -> Iterator[Place]:
    """The minimum in place of the maximum, the maximum in place of the sum."""
    for module in (TL, CT):
        for name, other in OPPOSITES.items():
            for call in code.find((f"{module}{name}",)):
                if isinstance(call.func, cst.Attribute):
                    yield Place(call.func, attribute(other))


def constant_changed(code: KernelCode) -> Iterator[Place]:
    """A constant that is slightly off."""
    for node in descendants(code.body, cst.Float):
        if (value := float(node.value)) != 0:
            yield Place(node, becomes(f"{value * CONSTANT_FACTOR:.6g}"))


def _assign(node: cst.AugAssign) -> cst.Assign:
    return cst.Assign([cst.AssignTarget(node.target)], node.value)


def _last(arg: cst.Arg) -> cst.Arg:
    return arg.with_changes(comma=cst.MaybeSentinel.DEFAULT)


VALUE_MUTATORS = (
    half_accumulator,
    upcast_removed,
    upcast_to_half,
    operands_swapped,
    eps_dropped,
    factor_dropped,
    divisor_dropped,
    term_dropped,
    accumulation_lost,
    start_wrong,
    axis_wrong,
    reduction_changed,
    constant_changed,
)
