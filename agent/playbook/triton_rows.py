"""Giving each program of a Triton kernel several rows, where it had one: a second dimension.

Every value of such a kernel is one number for all rows, one for each row, a tile of columns that
all rows share, or a tile of both. With `rows` a column of numbers and `cols` a row of them,
broadcasting does the rest: what has to change are the indices, the shapes of new tiles, the axis
of reductions, and the masks, since the last program may have fewer rows than the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from agent.backends.dialect import Kernel
from agent.backends.triton import TRITON
from agent.playbook.base import NotApplicable
from agent.playbook.definitions import binds
from agent.playbook.triton_edits import Edit, begun, followed, writing
from agent.playbook.triton_host import language
from agent.playbook.triton_programs import program_indices, unused
from agent.playbook.triton_row_extents import Extent, Names, Reading, of_cast
from agent.syntax import Source


@dataclass(frozen=True)
class RowKernel:
    """A kernel with one row a program, and the edits that give it several."""

    kernel: Kernel
    block: str
    """The constant that is the length of its tiles."""
    names: Names
    edits: Mapping[cst.CSTNode, Edit]


def row_kernel(source: Source, kernel: Kernel, count: str | None) -> RowKernel:
    """Read a kernel whose programs each have one row, along the first axis of the grid.

    Args:
        source: the file.
        kernel: one of its kernels.
        count: its parameter that says how many rows there are, where it has one.

    Raises:
        NotApplicable: a line may mix rows, or what it does with them is not to be seen.
    """
    block = _block(source, kernel)
    names = Names(count or unused(kernel, "n_rows"), unused(kernel, "ROWS"),
                  unused(kernel, "row_mask"))  # fmt: skip
    body = kernel.function.node.body
    if not isinstance(body, cst.IndentedBlock):
        raise NotApplicable(f"{kernel.name} is written on one line")
    asked = [index.call for index in program_indices(source, kernel) if index.axis == 0]
    if not asked:
        raise NotApplicable(f"{kernel.name} never asks for its place on axis 0")
    tl, named = language(source, kernel), _named(kernel, asked)
    row = named[1] if named else unused(kernel, "row")
    each = f"{tl}.arange(0, {names.rows})[:, None]"
    masked = f"{names.mask} = {row} < {names.count}"
    instead = numbered(source, asked[0], names.rows, each) if named else writing(row)
    reading = Reading(source, kernel, block, names, dict.fromkeys(asked, instead))
    reading.block_of(body.body, {p.name.value: Extent.NONE for p in kernel.function.parameters})
    if named:
        reading.edits[named[0]] = followed(masked)
    else:
        reading.edits[body] = begun(
            kernel, [f"{row} = {tl}.program_id(0) * {names.rows} + {each}", masked]
        )
    if not reading.of_rows:
        raise NotApplicable(
            f"{kernel.name} computes and loads nothing for a row as a whole: a larger {block} does "
            "what more rows would"
        )
    return RowKernel(kernel, block, names, reading.edits)


def _block(source: Source, kernel: Kernel) -> str:
    """The one constant that all tiles of the kernel are as long as."""
    found = {
        source.code(end)
        for call in TRITON.find(source, kernel.function.node.body, TRITON.iotas)
        if (end := TRITON.shapes["triton.language.arange"].of(call)) is not None
    }
    if len(found) != 1 or not found <= set(kernel.constants):
        listed = ", ".join(sorted(found)) or "none"
        raise NotApplicable(f"{kernel.name} has no one block: {listed}")
    return found.pop()


def _named(kernel: Kernel, asked: Sequence[cst.Call]) -> tuple[cst.SimpleStatementLine, str] | None:
    """The statement that gives the row a name of its own, if the kernel asks for it just there."""
    body = kernel.function.node.body
    for line in body.body if len(asked) == 1 else ():
        match line:
            case cst.SimpleStatementLine(
                body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=v)]
            ) if v is asked[0] or of_cast(v) is asked[0]:
                others = (other for other in body.body if other is not line)
                return None if any(binds(other, name) for other in others) else (line, name)
    return None


def numbered(source: Source, asked: cst.Call, rows: str, each: str) -> Edit:
    """The edit of `tl.program_id(0)` that makes the numbers of all rows of it."""
    operand = not isinstance(next(source.ancestors(asked)), cst.Assign)

    def edit(updated: cst.Call) -> cst.BinaryOperation:
        first = cst.BinaryOperation(updated, cst.Multiply(), cst.Name(rows))
        numbers = cst.BinaryOperation(first, cst.Add(), cst.parse_expression(each))
        lpar, rpar = ([cst.LeftParen()], [cst.RightParen()]) if operand else ([], [])
        return numbers.with_changes(lpar=lpar, rpar=rpar)

    return edit
