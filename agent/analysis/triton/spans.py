"""Runs of element numbers in a Triton kernel, `pid * BLOCK + tl.arange(0, BLOCK)`, and scalars.

This file may not import the dialect, which asks it.
"""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from agent.analysis.common.derived_names import all_values, is_no_variable
from agent.analysis.common.dialect import Dialect
from agent.analysis.common.module_names import is_imported
from agent.analysis.common.reaching_definitions import (
    Definition,
    definition,
    is_unchanged,
    value_of,
)
from agent.analysis.common.resized import resized
from agent.analysis.triton.reduced_axes import expanded_axis
from agent.syntax import Source, argument, descendants

TL = "triton.language."
ARANGE = f"{TL}arange"
SAME = (f"{TL}cast", f"{TL}max_contiguous", f"{TL}multiple_of")
"""What returns its first argument, of another type perhaps."""
WHOLE = (f"{TL}int32", f"{TL}int64")
"""Types that every number of an element has room in."""
SCALARS = tuple(
    f"{module}{name}"
    for module in (TL, "builtins.")
    for name in ("abs", "cast", "cdiv", "max", "max_contiguous", "maximum", "min", "minimum",
                 "multiple_of", "num_programs", "program_id")
)  # fmt: skip
"""What gives a number of numbers, and reads no memory."""
CASTS = frozenset({"to"})
"""Methods of a number that do."""
LOAD = f"{TL}load"
POINTERS = (f"{TL}make_block_ptr", f"{TL}advance", f"{TL}make_tensor_descriptor")
"""What makes the address of a tile."""
SHAPED = tuple(f"{TL}{name}" for name in ("broadcast_to", "expand_dims", "reshape", "view"))
"""What may make a tile of a number."""


@dataclass(frozen=True)
class Span:
    """The numbers `sum(starts) + 0, 1, ... extent - 1`."""

    starts: tuple[cst.BaseExpression, ...]
    """Scalars."""
    extent: str
    """A compile-time constant, as the kernel writes it."""
    axis: int | None = None
    """The dimension it runs along in a tile of two: 0 of `offsets[:, None]`, 1 of `[None, :]`."""


def span_of(
    dialect: Dialect, source: Source, expression: cst.BaseExpression, *, strictly: bool = False
) -> Span | None:
    """The run that an expression is; None when it is none, or not for certain.

    Args:
        dialect: Triton.
        source: the file.
        expression: in a kernel.
        strictly: as for `is_scalar`.
    """

    def scalar(part: cst.BaseExpression) -> bool:
        return is_scalar(dialect, source, part, strictly=strictly)

    behind = value_of(source, expression)
    match behind:
        case cst.BinaryOperation(operator=cst.Add()):
            left, right = (
                span_of(dialect, source, side, strictly=strictly)
                for side in (behind.left, behind.right)
            )
            if left is not None and right is None and scalar(behind.right):
                return Span((*left.starts, behind.right), left.extent, left.axis)
            if right is not None and left is None and scalar(behind.left):
                return Span((behind.left, *right.starts), right.extent, right.axis)
        case cst.Call():
            return _span_of_call(dialect, source, behind, strictly=strictly)
        case cst.Subscript() if (axis := expanded_axis(behind)) is not None:
            inner = span_of(dialect, source, behind.value, strictly=strictly)
            if inner is not None and inner.axis is None:
                return Span(inner.starts, inner.extent, axis)
    return None


def _span_of_call(
    dialect: Dialect, source: Source, call: cst.Call, *, strictly: bool
) -> Span | None:
    called = source.name(call.func)
    if called == ARANGE:
        start, end = argument(call, 0, "start"), argument(call, 1, "end")
        if start is not None and end is not None and source.code(start) == "0":
            return Span((), source.code(end))
    if called in SAME and call.args:
        cast = argument(call, 1, "dtype") if called == f"{TL}cast" else None
        keeps = called != f"{TL}cast" or (cast is not None and source.name(cast) in WHOLE)
        return span_of(dialect, source, call.args[0].value, strictly=strictly) if keeps else None
    if isinstance(call.func, cst.Attribute) and call.func.attr.value == "to" and called is None:
        keeps = len(call.args) == 1 and source.name(call.args[0].value) in WHOLE
        return span_of(dialect, source, call.func.value, strictly=strictly) if keeps else None
    return None


def is_scalar(
    dialect: Dialect, source: Source, expression: cst.BaseExpression, *, strictly: bool = False
) -> bool:
    """Whether an expression is certainly no tile: nothing in it counts or loads elements.

    Of a name that has one value or another, all values that the function gives it are looked at.
    What a function of another file makes of scalars is taken for one, unless `strictly`.
    """
    tiles = {*dialect.iotas, *dialect.loads, *dialect.accumulators, *POINTERS} - {LOAD}
    left, seen = [expression], {expression}
    while left:
        looked_at = left.pop()
        for call in descendants(looked_at, cst.Call):
            if dialect.called(source, call) in tiles or _may_make_a_tile(source, call, strictly):
                return False
        for name in descendants(looked_at, cst.Name):
            if is_no_variable(source, name) or source.name(name) == TL[:-1]:
                continue
            found = definition(source, name.value, name)
            values = _values(found) if found is not None else list(all_values(source, name))
            if found is None and not values and not belongs_to_module(source, name):
                return False
            new = [value for value in values if value not in seen]
            left += new
            seen.update(new)
    return True


def _may_make_a_tile(source: Source, call: cst.Call, strictly: bool) -> bool:
    """Whether what is called may make a tile of scalars; strictly, what is neither the language's,
    Python's nor a method may."""
    called = source.name(call.func)
    if called in SHAPED or source.function_of(call.func) is not None:
        return True
    if not strictly:
        return False
    is_method = isinstance(call.func, cst.Attribute) and called is None
    known = called is not None and called.startswith((TL, "builtins.", "triton."))
    return not (is_method or known)


def is_pure(source: Source, expression: cst.BaseExpression) -> bool:
    """Whether a scalar may be computed once more: it reads no memory, and changes none."""
    return all(
        source.name(call.func) in SCALARS
        or (isinstance(call.func, cst.Attribute) and call.func.attr.value in CASTS)
        for call in descendants(expression, cst.Call)
    )


def _values(found: Definition) -> list[cst.BaseExpression]:
    """What a definition assigns, unless it is a loop's counter or a parameter."""
    return [] if found.value is None or _is_counter(found) else [found.value]


def holds_at(source: Source, expression: cst.BaseExpression, place: cst.CSTNode) -> bool:
    """Whether an expression written at another place of the kernel has the same value there."""
    return all(
        is_no_variable(source, name)
        or (
            name.value not in resized(source)
            and (is_unchanged(source, name.value, name, place) or _is_set_once(source, name))
        )
        for name in descendants(expression, cst.Name)
    )


def _is_set_once(source: Source, name: cst.Name) -> bool:
    """Whether a name is of the module's level, where nothing gives it a second value later on."""
    once = is_imported(source, name) or len(source.assignments(name)) <= 1
    return once and belongs_to_module(source, name)


def _is_counter(found: Definition) -> bool:
    return isinstance(found.node, cst.For | cst.Param)


def belongs_to_module(source: Source, name: cst.Name) -> bool:
    """Whether a name is an attribute, a keyword, a built-in function or of the module's level."""
    if is_no_variable(source, name):
        return True
    assignments = source.assignments(name)
    return all(isinstance(a.scope.globals, type(a.scope)) for a in assignments)
