"""Index ranges of a Triton kernel: `pid * BLOCK + tl.arange(0, BLOCK)`."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from agent.analysis.common.derived_names import all_values
from agent.analysis.common.dialect import Kernel
from agent.analysis.common.reaching_definitions import (
    binds,
    definition,
    value_of,
)
from agent.analysis.triton import spans
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.program_ids import NUM_PROGRAMS, PROGRAM_ID
from agent.analysis.triton.spans import SAME
from agent.syntax import Source, argument, positional

TL = "triton.language."
SWIZZLE = f"{TL}swizzle2d"
RANGES = ("builtins.range", f"{TL}range")


def span_of(source: Source, expression: cst.BaseExpression) -> spans.Span | None:
    """See `agent.analysis.triton.spans`."""
    return spans.span_of(TRITON, source, expression)


def is_scalar(source: Source, expression: cst.BaseExpression) -> bool:
    """See `agent.analysis.triton.spans`."""
    return spans.is_scalar(TRITON, source, expression)


def may_be_negative(
    source: Source, expression: cst.BaseExpression, seen: frozenset[str] = frozenset()
) -> bool:
    """Whether an index shows that it may lie before its array, where a view may have memory.

    A parameter that is added may be a shift to the left; what a call returns is taken for none. Of
    a name that has one value or another, `seen` holds those whose values are being looked at.
    """

    def asked(part: cst.BaseExpression) -> bool:
        return may_be_negative(source, part, seen)

    behind = value_of(source, expression)
    match behind:
        case cst.UnaryOperation():
            return True
        case cst.Call(func=cst.Attribute(value=value, attr=cst.Name(value="to"))):
            return asked(value)
        case cst.Tuple():
            return any(asked(element.value) for element in behind.elements)
        case cst.BinaryOperation(left=left, operator=cst.Subtract()):
            counts = (*TRITON.cdivs, NUM_PROGRAMS)  # of which a program's number is taken
            return not TRITON.has(source, left, counts)
        case cst.BinaryOperation(left=left, operator=cst.FloorDivide() | cst.Modulo()):
            return asked(left)
        case cst.BinaryOperation(left=left, operator=cst.Multiply(), right=right):
            sides = [s for s in (left, right) if not _is_run_time(source, value_of(source, s))]
            return any(map(asked, sides))
        case cst.BinaryOperation(left=left, right=right):
            return asked(left) or asked(right)
        case cst.Name(value=name):
            found = definition(source, name, behind)
            if found is None:
                values = () if name in seen else all_values(source, behind)
                seen |= {name}
                return any(map(asked, values))
            if found.value is not None and isinstance(found.node, cst.For):
                bounds = found.value.args if isinstance(found.value, cst.Call) else ()
                return len(bounds) > 1 and asked(bounds[0].value)
            return _is_run_time(source, behind)
    return False


def _is_run_time(source: Source, node: cst.BaseExpression) -> bool:
    """Whether an expression is a parameter that is no constant."""
    found = definition(source, node.value, node) if isinstance(node, cst.Name) else None
    if found is None or not isinstance(found.node, cst.Param):
        return False
    said = found.node.annotation
    return said is None or not source.code(said.annotation).endswith("constexpr")


def is_wide(
    source: Source, expression: cst.BaseExpression, seen: frozenset[str] = frozenset()
) -> bool:
    """Whether an index may have more than 32 bits: it is made so, or comes from elsewhere.

    Of a name that has one value or another, `seen` holds those whose values are being looked at.
    """

    def asked(part: cst.BaseExpression) -> bool:
        return is_wide(source, part, seen)

    behind = value_of(source, expression)
    match behind:
        case cst.Call(func=cst.Attribute(value=value, attr=cst.Name(value="to"))):
            wanted = source.code(behind.args[0].value) if behind.args else ""
            return not wanted.endswith("int32") and (wanted.endswith("64") or asked(value))
        case cst.Call():
            called = TRITON.called(source, behind)
            loaded = called in TRITON.loads or _is_foreign(source, behind, called)
            made = any(source.code(arg.value).endswith("int64") for arg in behind.args)
            return loaded or made or any(asked(arg.value) for arg in behind.args)
        case cst.Tuple():
            return any(asked(element.value) for element in behind.elements)
        case cst.BinaryOperation(left=left, right=right):
            return asked(left) or asked(right)
        case cst.Name(value=name):
            found = definition(source, name, behind)
            if found is None:
                values = () if name in seen else all_values(source, behind)
                seen |= {name}
                return any(map(asked, values))
            if found.value is not None and (
                isinstance(found.node, cst.For) or found.index is not None
            ):
                return asked(found.value)
    return False


def _is_foreign(source: Source, call: cst.Call, called: str | None) -> bool:
    """Whether a function is called that neither this file nor the language has."""
    own = called is not None and called.startswith((TL, "builtins."))
    return not own and source.function_of(call.func) is None


# --- how far a start can get --------------------------------------------------------------------


@dataclass(frozen=True)
class Steps:
    """A start that is a multiple of a block and stays below a length.

    `axis` is the axis of the grid that has to have `cdiv(length, block)` programs for that, None
    where a loop sees to it.
    """

    length: str | None
    """None: whatever the grid's axis covers."""
    block: str
    axis: int | None


def steps_of(source: Source, start: cst.BaseExpression) -> Steps | None:
    """What a start steps through: `pid * BLOCK`, `k * BLOCK` or the variable of a loop."""
    behind = value_of(source, start)
    if isinstance(behind, cst.Name):
        return _steps_of_loop(source, behind, None)
    if isinstance(behind, cst.BinaryOperation) and isinstance(behind.operator, cst.Multiply):
        for factor, block in ((behind.left, behind.right), (behind.right, behind.left)):
            axis = program_axis(source, factor)
            if axis is not None:
                return Steps(None, source.code(block), axis)
            counter = value_of(source, factor)
            if isinstance(counter, cst.Name):
                found = _steps_of_loop(source, counter, source.code(block))
                if found is not None:
                    return found
    return None


def program_axis(source: Source, expression: cst.BaseExpression) -> int | None:
    """The axis of the grid along which an expression counts all programs, in whatever order."""
    behind = value_of(source, expression)
    if isinstance(behind, cst.Call):
        called = source.name(behind.func)
        if called == PROGRAM_ID:
            axis = argument(behind, 0, "axis")
            return axis.evaluated_value if isinstance(axis, cst.Integer) else None
        if called in SAME and behind.args:
            return program_axis(source, behind.args[0].value)
        if called is None and isinstance(behind.func, cst.Attribute):
            return program_axis(source, behind.func.value) if _is_cast(behind) else None
    if isinstance(behind, cst.Name):
        return _swizzled_axis(source, behind)
    return None


def _is_cast(call: cst.Call) -> bool:
    return isinstance(call.func, cst.Attribute) and call.func.attr.value == "to"


def _swizzled_axis(source: Source, name: cst.Name) -> int | None:
    """The axis behind `pid_m` of `pid_m, pid_n = tl.swizzle2d(i, j, num_m, num_n, group)`."""
    found = definition(source, name.value, name)
    if found is None or found.index is None or not isinstance(found.value, cst.Call):
        return None
    if source.name(found.value.func) != SWIZZLE or found.index > 1:
        return None
    given = positional(found.value)
    size = value_of(source, given[2 + found.index]) if len(given) == 5 else None
    if isinstance(size, cst.Call) and source.name(size.func) == NUM_PROGRAMS:
        axis = argument(size, 0, "axis")
        return axis.evaluated_value if isinstance(axis, cst.Integer) else None
    return None


def _steps_of_loop(source: Source, name: cst.Name, factor: str | None) -> Steps | None:
    """Steps of the variable of `range(0, n, B)`, or of `range(cdiv(n, B))` times B."""
    found = definition(source, name.value, name)
    if found is None or not isinstance(found.node, cst.For):
        return None
    loop = found.node.iter
    if not isinstance(loop, cst.Call) or source.name(loop.func) not in RANGES:
        return None
    given = positional(loop)
    if len(given) > 1 and source.code(given[0]) != "0":
        return None
    if factor is None:
        return (
            Steps(source.code(given[1]), source.code(given[2]), None) if len(given) == 3 else None
        )
    bound = value_of(source, given[min(len(given), 2) - 1]) if given and len(given) < 3 else None
    if isinstance(bound, cst.Call) and source.name(bound.func) in TRITON.cdivs:
        length, block = (source.code(a.value) for a in bound.args)
        return Steps(length, block, None) if block == factor else None
    return None


def belongs_to(kernel: Kernel, name: str | None) -> bool:
    """Whether a text is a parameter of the kernel, which the kernel never assigns."""
    if name not in {p.name.value for p in kernel.function.parameters}:
        return False
    return not binds(kernel.function.node.body, name)
