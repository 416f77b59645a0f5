"""Along which dimensions of a tile a value differs, before a store broadcasts it along the others.

`tl.store` takes `tl.sum(acc, 1)[:, None]` for a tile of two dimensions; a descriptor does not, nor
does `tl.reshape`. What is not followed is taken for the whole tile.
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.index_ranges import is_scalar
from agent.analysis.triton.reduced_axes import expanded_axis
from agent.syntax import Source, argument, assigned, descendants, keyword

TL = "triton.language."
BOTH = frozenset({0, 1})
LAST = frozenset({1})
"""One dimension, which is broadcast as the last."""
SHAPED = (*TRITON.accumulators, f"{TL}broadcast_to", f"{TL}reshape", f"{TL}view")
REDUCED = tuple(f"{TL}{name}" for name in ("argmax", "argmin", "max", "min", "sum", "xor_sum"))
UNFOLLOWED = tuple(f"{TL}{name}" for name in ("join", "cat", "gather", "inline_asm_elementwise"))
SAME = (f"{TL}cast", *TRITON.arithmetic)


def is_broadcast(source: Source, kernel: Kernel, value: cst.BaseExpression) -> bool:
    """Whether a value that is stored as a tile of two dimensions is shown to have fewer."""
    return _axes(source, kernel, value, frozenset()) != BOTH


def spans_both(kernel: Kernel) -> bool:
    """Whether a kernel sets element numbers along both dimensions of a tile: `a[:, None]` and
    `b[None, :]`."""
    body = kernel.function.node.body
    found = {expanded_axis(node) for node in descendants(body, cst.Subscript)}
    return found >= BOTH


def _axes(
    source: Source, kernel: Kernel, value: cst.BaseExpression, seen: frozenset[str]
) -> frozenset[int]:
    """The dimensions; `seen` holds the names whose values are being looked at."""

    def of(*parts: cst.BaseExpression) -> frozenset[int]:
        return frozenset().union(*(_axes(source, kernel, part, seen) for part in parts))

    behind = value_of(source, value)
    if is_scalar(source, behind) and not TRITON.has(source, behind, (*TRITON.dots, *UNFOLLOWED)):
        return frozenset()
    match behind:
        case cst.Name(value=name):
            values = [v for t, v in assigned(kernel.function.node.body)
                      if isinstance(t, cst.Name) and t.value == name]  # fmt: skip
            if name in seen:
                return frozenset()
            seen |= {name}
            return of(*values) if values else BOTH
        case cst.Subscript() if (axis := expanded_axis(behind)) is not None:
            return frozenset({axis})
        case cst.UnaryOperation(expression=operand):
            return of(operand)
        case cst.BinaryOperation(left=left, right=right):
            return of(left, right)
        case cst.Comparison(left=left, comparisons=others):
            return of(left, *(other.comparator for other in others))
        case cst.Call():
            return _of_call(source, kernel, behind, seen)
    return BOTH


def _of_call(
    source: Source, kernel: Kernel, call: cst.Call, seen: frozenset[str]
) -> frozenset[int]:
    called = TRITON.called(source, call) or ""
    first = argument(call, 0, "input")
    if isinstance(call.func, cst.Attribute) and call.func.attr.value == "to":
        return _axes(source, kernel, call.func.value, seen)
    if called in SAME:
        return frozenset().union(*(_axes(source, kernel, a.value, seen) for a in call.args))
    if called in TRITON.iotas:
        return LAST
    if called in SHAPED and (shape := _shape(call, called)) is not None:
        wide = (i for i, e in enumerate(shape) if source.code(e.value) != "1")
        return frozenset(wide) if len(shape) == 2 else LAST if len(shape) == 1 else BOTH
    if called == f"{TL}load" and call.args:
        within = (argument(call, i, name) for i, name in enumerate(("pointer", "mask")))
        found = (_axes(source, kernel, part, seen) for part in within if part is not None)
        return frozenset().union(*found)
    if called in REDUCED and first is not None:
        axis, kept = argument(call, 1, "axis"), keyword(call, "keep_dims")
        if kept is not None and source.code(kept) == "True" and isinstance(axis, cst.Integer):
            return BOTH - {axis.evaluated_value}
        return LAST if _has_two(source, kernel, first) else BOTH
    if called == f"{TL}expand_dims" and isinstance(axis := argument(call, 1, "axis"), cst.Integer):
        return BOTH - {axis.evaluated_value}
    return BOTH


def _shape(call: cst.Call, called: str) -> Sequence[cst.BaseElement] | None:
    given = TRITON.shapes[called].of(call)
    return given.elements if isinstance(given, cst.Tuple | cst.List) else None


def _has_two(source: Source, kernel: Kernel, value: cst.BaseExpression) -> bool:
    """Whether a value is a product, or was set up with two dimensions."""
    behind = value_of(source, value)
    values = [v for t, v in assigned(kernel.function.node.body)
              if isinstance(behind, cst.Name) and isinstance(t, cst.Name)
              and t.value == behind.value]  # fmt: skip
    for call in (v for v in (behind, *values) if isinstance(v, cst.Call)):
        called = TRITON.called(source, call) or ""
        shape = _shape(call, called) if called in TRITON.accumulators else None
        if called in TRITON.dots or (shape is not None and len(shape) == 2):
            return True
    return False
