"""Puts the body of a cuTile kernel into a loop over blocks, so that a few blocks do all the work.

The extents of the grid become parameters; whoever launches the kernel hands them over, and may
launch as many blocks as it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import libcst as cst

from agent.analysis.common.builtin_names import check_builtins
from agent.analysis.common.dialect import Kernel
from agent.analysis.common.reaching_definitions import binds
from agent.analysis.common.subject import NotApplicable
from agent.analysis.cutile.blocks import (
    BID,
    NUM_BLOCKS,
    BlockIndex,
    block_counts,
    block_indices,
    grid_of,
    launches,
    over_blocks,
)
from agent.analysis.cutile.dialect import grid_axis
from agent.analysis.cutile.waiting import check_never_waits
from agent.rewriting.common.insertion import part_of_number, unused
from agent.rewriting.common.parameters import taking
from agent.rewriting.cutile.blocks import replacing, spelling
from agent.syntax import Edits, Source, descendants


@dataclass(frozen=True)
class Looped:
    """A kernel whose blocks may be fewer than the tiles."""

    edits: Edits
    """Those of the kernel; its launches are to be changed with it."""
    extents: tuple[str, ...]
    """The parameters added behind its own: the extents of the grid, the fastest axis first."""


def looped(source: Source, kernel: Kernel) -> Looped:
    """The kernel with its body in a loop over blocks.

    Raises:
        NotApplicable: the body is not the same when run twice in one block, or does not show what
            it does with the grid.
    """
    function = kernel.function.node
    body = function.body
    if not isinstance(body, cst.IndentedBlock):
        raise NotApplicable(f"{kernel.name} is written on one line")
    indices, counts = _asked(source, kernel)
    _check_body(source, kernel)
    check_builtins(source, body, "range")
    extents = _extents(source, kernel, (*indices, *counts))
    ct = spelling(source, indices[0].call)
    numbers = _numbers(source, body, len(extents))
    named = _named_number(kernel, indices, numbers)
    variable = unused(kernel, "block", extents) if named is None else named[0]
    edits: dict[cst.CSTNode, Callable[[Any], Any]] = {
        count.call: replacing(source, count.call, extents[count.axis]) for count in counts
    }
    for index in indices:
        edits[index.call] = replacing(
            source, index.call, part_of_number(variable, extents, index.axis)
        )
    for number in numbers:
        edits[number] = replacing(source, number, variable)
    whole = " * ".join(extents)
    loop = f"for {variable} in range({ct}.bid(0), {whole}, {ct}.num_blocks(0)): pass"
    leading = () if named is None else named[1].leading_lines

    def edit(updated: cst.IndentedBlock) -> cst.IndentedBlock:
        place = body.body.index(named[1]) if named is not None else None
        inner = [s for i, s in enumerate(updated.body) if i != place]
        docstring = inner[:1] if function.get_docstring() is not None else []
        rest = inner[len(docstring) :]
        around = cst.ensure_type(cst.parse_statement(loop), cst.For).with_changes(
            leading_lines=leading,
            body=cst.IndentedBlock(rest, footer=updated.footer),
        )
        return updated.with_changes(body=[*docstring, around], footer=[])

    edits[body] = edit
    edits[function] = taking(source, function, [cst.Param(cst.Name(name)) for name in extents])
    return Looped(edits, extents)


def _asked(source: Source, kernel: Kernel) -> tuple[tuple[BlockIndex, ...], tuple[BlockIndex, ...]]:
    """Where a kernel asks for its block, and where for an extent of the grid.

    One that strides over its tiles by the number of blocks is persistent already.
    """
    if (loop := over_blocks(source, kernel)) is not None:
        raise NotApplicable(
            f"{kernel.name} is persistent already: its loop at line {source.line(loop)}"
        )
    return block_indices(source, kernel, may_count=True), block_counts(source, kernel)


def _check_body(source: Source, kernel: Kernel) -> None:
    """Raise `NotApplicable` for a body that is not the same when run twice in one block."""
    body = kernel.function.node.body
    listed = kernel.function.node.params
    if not listed.params or listed.kwonly_params or listed.params[-1].default is not None:
        raise NotApplicable(f"{kernel.name} has no plain last parameter for another to follow")
    for leaving in descendants(body, cst.Return):
        raise NotApplicable(f"line {source.line(leaving)} returns from {kernel.name}")
    for parameter in kernel.function.parameters:
        if binds(body, parameter.name.value):
            raise NotApplicable(f"{kernel.name} assigns its parameter {parameter.name.value}")
    check_never_waits(source, kernel)


def _extents(source: Source, kernel: Kernel, indices: Sequence[BlockIndex]) -> tuple[str, ...]:
    """The names of the parameters that hold the extents of the grid."""
    used = {index.axis for index in indices}
    for launch in launches(source, kernel):
        grid = grid_of(source, launch)
        used |= {i for i, extent in enumerate(grid) if source.code(extent) != "1"}
    wanted = [f"n_blocks_{axis}" for axis in range(max(used) + 1)] if max(used) else ["n_blocks"]
    return tuple(unused(kernel, name) for name in wanted)


def _numbers(
    source: Source, body: cst.IndentedBlock, n_axes: int
) -> tuple[cst.BaseExpression, ...]:
    """Where a kernel computes the number of its block, as hardware counts along all axes."""
    expressions = descendants(body, cst.BinaryOperation if n_axes > 1 else cst.Call)
    return tuple(e for e in expressions if _last_axis(source, e, 0) == n_axes - 1)


def _last_axis(source: Source, expression: cst.BaseExpression, axis: int) -> int | None:
    """The last axis of `bid(axis) + num_blocks(axis) * (bid(axis + 1) + ...)`; None: no such."""
    match expression:
        case cst.Call() if source.name(expression.func) == BID:
            return axis if grid_axis(expression) == axis else None
        case cst.BinaryOperation(
            left=first,
            operator=cst.Add(),
            right=cst.BinaryOperation(operator=cst.Multiply()) as slower,
        ) if _last_axis(source, first, axis) == axis:
            for count, rest in (
                (slower.left, slower.right),
                (slower.right, slower.left),
            ):
                counted = isinstance(count, cst.Call) and source.name(count.func) == NUM_BLOCKS
                if counted and grid_axis(cst.ensure_type(count, cst.Call)) == axis:
                    return _last_axis(source, rest, axis + 1)
    return None


def _named_number(
    kernel: Kernel, indices: Sequence[BlockIndex], numbers: Sequence[cst.BaseExpression]
) -> tuple[str, cst.SimpleStatementLine] | None:
    """`row` and its line of a kernel that asks for its block once, by `row = ct.bid(0)`."""
    asked = {call for number in numbers for call in descendants(number, cst.Call)}
    if len(numbers) != 1 or not {index.call for index in indices} <= asked:
        return None
    for line in kernel.function.node.body.body:
        if not isinstance(line, cst.SimpleStatementLine) or line.trailing_whitespace.comment:
            continue
        match line.body:
            case [cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=value)]:
                others = [s for s in kernel.function.node.body.body if s is not line]
                if value is numbers[0] and not any(binds(s, name) for s in others):
                    return name, line
    return None
