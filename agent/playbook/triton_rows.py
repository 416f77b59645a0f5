"""Giving each program of a Triton kernel several rows, where it had one: a second dimension.

Every value of such a kernel is one number for all rows, one for each row, a tile of columns that
all rows share, or a tile of both. With `rows` a column of numbers and `cols` a row of them,
broadcasting does the rest: what has to change are the indices, the shapes of new tiles, the axis
of reductions, and the masks, since the last program may have fewer rows than the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import libcst as cst

from agent.backends.dialect import Kernel
from agent.backends.triton import TRITON
from agent.playbook.base import NotApplicable
from agent.playbook.definitions import binds
from agent.playbook.triton_edits import Edit
from agent.playbook.triton_host import language
from agent.playbook.triton_programs import program_indices, unused
from agent.playbook.triton_row_extents import Names, Reading, of_cast
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
    row, line, name = _row(source, kernel)
    reading = Reading(source, kernel, block, names, row, language(source, kernel))
    reading.block_of(body.body, {})
    masked = cst.parse_statement(f"{names.mask} = {name} < {names.count}")
    reading.edits[line] = lambda updated: cst.FlattenSentinel([updated, masked])
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


def _row(source: Source, kernel: Kernel) -> tuple[cst.Call, cst.SimpleStatementLine, str]:
    """Where the kernel asks for its row, and the statement that gives it a name."""
    asked = [index.call for index in program_indices(source, kernel) if index.axis == 0]
    if len(asked) != 1:
        raise NotApplicable(f"{kernel.name} asks {len(asked)} times for its place on axis 0")
    (call,) = asked
    body = kernel.function.node.body
    for line in body.body:
        match line:
            case cst.SimpleStatementLine(
                body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=v)]
            ) if v is call or of_cast(v) is call:
                if any(binds(other, name) for other in body.body if other is not line):
                    raise NotApplicable(f"{name} of {kernel.name} is assigned more than once")
                return call, line, name
    raise NotApplicable(f"line {source.line(call)} does not give the row a name of its own")
