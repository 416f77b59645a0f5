"""Masks in the loops of a Triton kernel that remove something of a few tiles only."""

from __future__ import annotations

from functools import partial

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.edge_masks import EdgeMask, edge_mask, masks_in_loops
from agent.analysis.common.edge_tests import asked_in, edge_tests
from agent.analysis.common.index_runs import NotRegular
from agent.analysis.common.subject import NotApplicable, Subject
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


def edge_masks(subject: Subject, kernel: Kernel) -> list[EdgeMask]:
    """The masks of a kernel's own loops that do nothing in some of the steps.

    Raises:
        NotApplicable: there are none, with the reason of each.
    """
    return masks_in_loops(
        subject.source, kernel, CHOOSE, partial(_of_mask, subject, kernel), LOOKED_FOR
    )


def _of_mask(subject: Subject, kernel: Kernel, loop: cst.For, call: cst.Call) -> EdgeMask:
    source = subject.source
    at = f"line {source.line(call)}"
    line = next((a for a in source.ancestors(call) if isinstance(a, cst.SimpleStatementLine)), None)
    form = form_of(TRITON, source, line, call) if line is not None else None
    if line is None or form is None:
        raise NotApplicable(f"{at} does more than to mask a tile by a number")
    if asked := asked_in(source, loop, line):
        raise NotApplicable(f"{at} is masked under a condition already, that of line {asked}")
    if not TRITON.has_dot(source, kernel):
        raise NotApplicable(f"{at} masks no product")
    if _kind(source, kernel, form.kept, frozenset()) != "product":
        raise NotApplicable(f"{at} masks what may be no product in 32 bits")
    mask = positional(call)[0]
    try:
        tests = edge_tests(source, loop, line, mask, reading(TRITON))
    except NotRegular as reason:
        raise NotApplicable(f"the mask of {at}: {reason}") from None
    return edge_mask(subject, kernel, line, form, [mask, positional(call)[2]], tests)


def _kind(source: Source, kernel: Kernel, node: cst.BaseExpression, seen: frozenset[str]) -> str:
    """'product' for a tile with the shape of a product, of floating-point numbers unless its
    factors are integers; 'part' for what is broadcast to it; 'unknown' else.

    `seen` holds the names whose values are being looked at: those are as the others are.
    """
    if isinstance(node, cst.Name):
        if node.value in seen:
            return "product"
        if (values := _values(kernel, node.value)) is not None:
            seen |= {node.value}
            plain, added = ([_kind(source, kernel, v, seen) for v in each] for each in values)
            if "unknown" in (*plain, *added) or (plain and {*plain} != {"product"}):
                return "unknown"
            return _together({*plain, *added})
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


def _values(
    kernel: Kernel, name: str
) -> tuple[list[cst.BaseExpression], list[cst.BaseExpression]] | None:
    """What a kernel assigns to a name, and what it adds to it and the like; None for nothing."""
    body = kernel.function.node.body
    added = [
        augmented.value
        for augmented in descendants(body, cst.AugAssign)
        if isinstance(augmented.target, cst.Name) and augmented.target.value == name
    ]
    plain = [
        value
        for target, value in assigned(body)
        if isinstance(target, cst.Name) and target.value == name and value not in added
    ]
    return (plain, added) if plain or added else None


def _kind_of_call(source: Source, kernel: Kernel, call: cst.Call, seen: frozenset[str]) -> str:
    called = TRITON.called(source, call) or ""
    if called == DOT:
        return "product" if keyword(call, "out_dtype") is None else "unknown"
    if called in FILLED:
        shape, dtype = argument(call, 0, "shape"), argument(call, FILLED[called], "dtype")
        edges = shape.elements if isinstance(shape, cst.Tuple | cst.List) else ()
        has_two = len(edges) == 2 and not any(source.code(e.value) == "1" for e in edges)
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
