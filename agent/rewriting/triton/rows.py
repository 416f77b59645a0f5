"""Gives each program of a Triton kernel several rows, as a second dimension of its tiles.

Every value of such a kernel is one number for all rows, one for each row, a tile of columns that
all rows share, or a tile of both. With `rows` a column of numbers and `cols` a row of them,
broadcasting does the rest: what has to change are the indices, the shapes of new tiles, the axis
of reductions, and the masks, since the last program may have fewer rows than the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.host import language
from agent.analysis.triton.index_ranges import span_of, steps_of
from agent.analysis.triton.program_ids import naming, program_indices
from agent.rewriting.common.insertion import unused
from agent.rewriting.triton.edits import Edit, begun, followed, writing
from agent.rewriting.triton.row_extents import Reading
from agent.rewriting.triton.row_shapes import RowExtent, RowNames, of_cast, tile_form
from agent.syntax import Source, descendants


@dataclass(frozen=True)
class RowKernel:
    """A kernel with one row a program, and the edits that give it several."""

    kernel: Kernel
    axis: int
    """Of the grid, along which the rows are."""
    blocks: tuple[str, ...]
    """The constants that are the lengths of its tiles, one a dimension."""
    names: RowNames
    edits: Mapping[cst.CSTNode, Edit]

    @property
    def is_counted(self) -> bool:
        """Whether a parameter says how many rows there are already."""
        return self.names.count in {p.name.value for p in self.kernel.function.parameters}


def row_kernel(source: Source, kernel: Kernel, axis: int, count: str | None) -> RowKernel:
    """Read a kernel whose programs each have one row along an axis of the grid.

    Args:
        source: the file.
        kernel: one of its kernels.
        axis: of the grid.
        count: its parameter that says how many rows there are, where it has one.

    Raises:
        NotApplicable: a line may mix rows, or what it does with them is not to be seen.
    """
    form = tile_form(source, kernel)
    if len(form.blocks) > 1 and (block := _counted_by(source, kernel, axis)) is not None:
        raise NotApplicable(
            f"{kernel.name} counts along axis {axis} of its grid by {block}: a larger one does "
            "what more rows would"
        )
    names = RowNames(count or unused(kernel, "n_rows"), unused(kernel, "ROWS"),
                  unused(kernel, "row_mask"))  # fmt: skip
    body = kernel.function.node.body
    if not isinstance(body, cst.IndentedBlock):
        raise NotApplicable(f"{kernel.name} is written on one line")
    asked = [index.call for index in program_indices(source, kernel) if index.axis == axis]
    if not asked:
        raise NotApplicable(f"{kernel.name} never asks for its place on axis {axis}")
    tl, (name, line) = language(source, kernel), _named(source, kernel, asked)
    row = name or unused(kernel, "row")
    each = f"{tl}.arange(0, {names.rows}){form.of_rows}"
    masked = f"{names.mask} = {row} < {names.count}"
    instead = _numbered(source, asked[0], names.rows, each) if name else writing(row)
    reading = Reading(source, kernel, form, names, dict.fromkeys(asked, instead))
    reading.block_of(body.body, {p.name.value: RowExtent.NONE for p in kernel.function.parameters})
    if line is not None:
        reading.edits[line] = followed(masked)
    else:
        reading.edits[body] = begun(
            kernel, [f"{row} = {tl}.program_id({axis}) * {names.rows} + {each}", masked]
        )
    if not reading.of_rows and len(form.blocks) == 1:
        raise NotApplicable(
            f"{kernel.name} computes and loads nothing for a row as a whole: a larger "
            f"{form.blocks[0]} does what more rows would"
        )
    return RowKernel(kernel, axis, form.blocks, names, reading.edits)


def _counted_by(source: Source, kernel: Kernel, axis: int) -> str | None:
    """`BLOCK` of `tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)`, several rows already."""
    for sum_ in descendants(kernel.function.node.body, cst.BinaryOperation):
        if isinstance(sum_.operator, cst.Add) and (span := span_of(source, sum_)) is not None:
            steps = (steps_of(source, start) for start in span.starts)
            if any(each is not None and each.axis == axis for each in steps):
                return span.extent
    return None


def _named(
    source: Source, kernel: Kernel, asked: Sequence[cst.Call]
) -> tuple[str | None, cst.SimpleStatementLine | None]:
    """The row's own name and its statement, if the kernel asks just there; through a cast, too."""
    if len(asked) != 1:
        return None, None
    around = (x for x in source.ancestors(asked[0]) if isinstance(x, cst.Call))
    return naming(kernel, next((x for x in around if of_cast(x) is asked[0]), asked[0]))


def _numbered(source: Source, asked: cst.Call, rows: str, each: str) -> Edit:
    """The edit of `tl.program_id(0)` that makes the numbers of all rows of it."""
    operand = not isinstance(next(source.ancestors(asked)), cst.Assign)

    def edit(updated: cst.Call) -> cst.BinaryOperation:
        first = cst.BinaryOperation(updated, cst.Multiply(), cst.Name(rows))
        numbers = cst.BinaryOperation(first, cst.Add(), cst.parse_expression(each))
        lpar, rpar = ([cst.LeftParen()], [cst.RightParen()]) if operand else ([], [])
        return numbers.with_changes(lpar=lpar, rpar=rpar)

    return edit
