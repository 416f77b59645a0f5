"""Masks in the loops of a Triton kernel that remove something of a few tiles only."""

from __future__ import annotations

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.each_kernel import of_each
from agent.analysis.common.edge_tests import (
    EdgeMask,
    asked_in,
    edge_tests,
    loop_of,
)
from agent.analysis.common.index_runs import NotRegular
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.edge_forms import CHOOSE, form_of, is_number, reading
from agent.analysis.triton.reduced_axes import expanded_axis
from agent.syntax import Source, argument, assigned, descendants, keyword, positional

TL = "triton.language."
DOT = f"{TL}dot"
FILLED = {f"{TL}full": 2, f"{TL}zeros": 1}
"""What makes a tile of one number -> where it is told the type."""
LOOKED_FOR = (
    "looks for products in a loop that are masked by their element numbers, as at a diagonal"
)
"""What a refusal begins with."""


def edge_masks(source: Source, kernel: Kernel) -> list[EdgeMask]:
    """The masks of a kernel's own loops that do nothing in some of the steps.

    Raises:
        NotApplicable: there are none, with the reason of each.
    """
    masks = [
        (loop, call)
        for call in descendants(kernel.function.node.body, cst.Call)
        if source.name(call.func) == CHOOSE and (loop := loop_of(source, call))
    ]
    return of_each(
        masks,
        lambda mask: _of_mask(source, kernel, *mask),
        f"{LOOKED_FOR}, and {kernel.name} has none",
    )


def _of_mask(source: Source, kernel: Kernel, loop: cst.For, call: cst.Call) -> EdgeMask:
    at = f"line {source.line(call)}"
    line = next((a for a in source.ancestors(call) if isinstance(a, cst.SimpleStatementLine)), None)
    form = form_of(TRITON, source, line, call) if line is not None else None
    if line is None or form is None:
        raise NotApplicable(f"{at} does more than to mask a tile by a number")
    if asked := asked_in(source, loop, line):
        raise NotApplicable(f"{at} is masked under a condition already, that of line {asked}")
    if _kind(source, kernel, form.kept, frozenset()) != "product":
        raise NotApplicable(f"{at} masks what may be no product in 32 bits")
    mask = positional(call)[0]
    try:
        tests = edge_tests(source, loop, line, mask, reading(TRITON))
    except NotRegular as reason:
        raise NotApplicable(f"the mask of {at}: {reason}") from None
    texts = tuple(test.text for test in tests)
    return EdgeMask(line, mask, form.target, form.kept, form.again, texts)


def _kind(source: Source, kernel: Kernel, node: cst.BaseExpression, seen: frozenset[str]) -> str:
    """'product' for a tile with the shape of a product that is float32, or becomes so with the
    first number it meets; 'part' for what is broadcast to it; 'unknown' else.

    `seen` holds the names whose values are being looked at.
    """
    if isinstance(node, cst.Name):
        if node.value in seen:
            return "part"
        values = [
            value
            for target, value in assigned(kernel.function.node.body)
            if isinstance(target, cst.Name) and target.value == node.value
        ]
        if values:
            kinds = {_kind(source, kernel, value, seen | {node.value}) for value in values}
            return _together(kinds)
    if is_number(TRITON, source, node):
        return "part"
    match node:
        case cst.Subscript() if expanded_axis(node) is not None:
            return "part"
        case cst.UnaryOperation(expression=inner):
            return _kind(source, kernel, inner, seen)
        case cst.BinaryOperation(operator=operator, left=left, right=right):
            if isinstance(operator, cst.MatrixMultiply):
                return "product"
            return _together({_kind(source, kernel, side, seen) for side in (left, right)})
        case cst.Call():
            return _kind_of_call(source, kernel, node, seen)
    return "unknown"


def _kind_of_call(source: Source, kernel: Kernel, call: cst.Call, seen: frozenset[str]) -> str:
    called = TRITON.called(source, call) or ""
    if called == DOT:
        return "product" if keyword(call, "out_dtype") is None else "unknown"
    if called in FILLED:
        shape, dtype = argument(call, 0, "shape"), argument(call, FILLED[called], "dtype")
        has_two = isinstance(shape, cst.Tuple | cst.List) and len(shape.elements) == 2
        is_float32 = dtype is not None and source.name(dtype) == f"{TL}float32"
        return "product" if has_two and is_float32 else "unknown"
    if called == CHOOSE:
        given = positional(call)[1:]
        return _together({_kind(source, kernel, each, seen) for each in given})
    if called in TRITON.arithmetic:
        return _together({_kind(source, kernel, a.value, seen) for a in call.args})
    if called in TRITON.loads:
        return "part"
    match call:
        case cst.Call(
            func=cst.Attribute(value=inner, attr=cst.Name(value="to")), args=[cst.Arg(value=dtype)]
        ) if source.name(dtype) == f"{TL}float32":
            return _kind(source, kernel, inner, seen)
    return "unknown"


def _together(kinds: set[str]) -> str:
    """Of what is computed from several: a product where one is, if nothing is unknown."""
    return next((kind for kind in ("unknown", "product") if kind in kinds), "part")
