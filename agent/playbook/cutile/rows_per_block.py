"""Let one block work on several rows.

When: a cuTile kernel with a block for each row, whose rows are too short to keep a block busy.
Do: give every tile of a row 2, 4 or 8 rows, and the grid as many times fewer blocks.
Risk: none to results: rows do not mix where every reduction runs along the row, and no row that is
    not the grid's is stored; both are checked. Long rows spill.
Source: TileGym's performance model for cuTile, on the bytes that are on their way at once. Compiled
    with cuda-tile 1.7, a block that copies 4 rows of 1024 float32 has 8 LDG.128 on their way in
    each thread instead of 2, with 46 registers instead of 18 for sm_80. No public source gives a
    time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.each_kernel import all_refuse
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.playbook.base import Optimization
from agent.playbook.trial import F32, TILE_ROWS, TileTrial
from agent.rewriting.cutile.coarsening import (
    Widened,
    block_name,
    casts,
    check_access,
    check_body,
    count,
    elements,
    widened,
)
from agent.syntax import Source, argument, descendants, keyword

SWEEP = (2, 4, 8)
REDUCTIONS = tuple(f"{CT}{name}" for name in ("max", "min", "prod", "sum"))
SHAPED = {f"{CT}full": 0, f"{CT}zeros": 0, f"{CT}ones": 0, f"{CT}num_tiles": 2}
"""What is given a tile's shape, but for loads -> where."""
ROW_BY_ROW = frozenset(
    (*CUTILE.arithmetic, *CUTILE.ranges, *CUTILE.cdivs, *CUTILE.iotas, f"{CT}astype",
     f"{CT}equal", f"{CT}greater", f"{CT}greater_equal", f"{CT}isnan", f"{CT}less",
     f"{CT}less_equal", f"{CT}not_equal", "builtins.min", "builtins.max")
)  # fmt: skip
"""What computes each row of a tile from that row alone."""


class RowsPerBlock(Optimization):
    """`shape=(1, N)` and a grid of `rows` -> `shape=(4, N)` and a grid of `rows / 4`."""

    name = "rows-per-block"
    title = "rows a block"
    backend = "cutile"
    family = "rows"
    priority: ClassVar = {KernelClass.MEMORY: 140, KernelClass.BALANCED: 110}
    expected = "not known; something for rows of a few hundred elements, a loss for long ones"
    hypothesis = "More bytes are on their way in each block, and fewer blocks are started."
    opt_in = "it lost on all three kernels that it was tried on"
    example: ClassVar[Params] = {"rows": 4}
    before = TILE_ROWS
    after = before.replace("shape=(1, N)", "shape=(4, N)").replace(
        "ct.launch(torch.cuda.current_stream(), (x.shape[0],), softmax_kernel, (x, y, n))",
        """\
ct.launch(
        torch.cuda.current_stream(), (ct.cdiv(x.shape[0], 4),), softmax_kernel, (x, y, n)
    )""",
    )

    trial = TileTrial(kernel="softmax_kernel", arguments=((F32, 2), (F32, 2), 1024))

    def variants(self, subject: Subject) -> Sequence[Params]:
        """The sweep, for kernels that have one row a block."""
        _by_row(subject.source)
        return [{"rows": rows} for rows in SWEEP]

    def apply(self, subject: Subject, params: Params) -> str:
        """Widen the tiles of every kernel that has one row a block, and shorten its grids."""
        source = subject.source
        return widened(source, _by_row(source), str(params["rows"]))


def _by_row(source: Source) -> list[Widened]:
    """The kernels that can be changed. Raises `NotApplicable` with the reasons when none can."""
    found: list[Widened] = []
    reasons: list[str] = []
    for kernel in CUTILE.chosen(source):
        try:
            row = block_name(source, kernel, 0, first=True)
            edges = _edges(source, kernel, row)
            stored = {p.name.value: 0 for p in kernel.function.parameters}
            counts = tuple(count(source, kernel, x, 0, stored) for x in kernel.launches)
            found.append(Widened(edges, counts))
        except NotApplicable as refusal:
            reasons.append(f"{kernel.name}: {refusal}")
    if not found:
        raise all_refuse(reasons, "the file holds no cuTile kernel")
    return found


# --- the kernel ---------------------------------------------------------------------------------


def _edges(source: Source, kernel: Kernel, row: str) -> tuple[cst.Integer, ...]:
    """The `1` of each tile shape. Refuses whatever may mix rows or is not sure to be a row."""
    check_body(source, kernel)
    edges: list[cst.Integer] = []
    for call in descendants(kernel.function.node.body, cst.Call):
        edges += _edges_of(source, call, row)
    if not edges:
        raise NotApplicable("no tile of it has a row")
    return tuple(dict.fromkeys(edges))


def _edges_of(source: Source, call: cst.Call, row: str) -> Iterator[cst.Integer]:
    called = source.name(call.func) or ""
    line = source.line(call)
    if called in (f"{CT}load", f"{CT}store"):
        check_access(source, call)
        index = elements(argument(call, 1, "index"))
        by_row = isinstance(head := _first(index), cst.Name) and head.value == row
        if by_row and len(index) != 2:
            raise NotApplicable(f"line {line} has {len(index)} indices, not a row and a column")
        if called == f"{CT}load":
            shape = argument(call, 2, "shape")
            if by_row:
                yield from _edge(shape, line)
            elif len(elements(shape)) != 1:
                list(_edge(shape, line))  # a row for all rows is not made several
        elif not by_row:
            raise NotApplicable(f"line {line} stores something else than the block's row")
    elif called in SHAPED:
        axis = argument(call, 1, "axis")
        shape = argument(call, SHAPED[called], "shape")
        if len(elements(shape)) == 1:
            return  # of columns, for all rows
        if called == f"{CT}num_tiles" and (axis is None or source.code(axis) not in ("1", "-1")):
            raise NotApplicable(f"line {line} counts rows")
        yield from _edge(shape, line)
    elif called in REDUCTIONS:
        axis, keeps = argument(call, 1, "axis"), keyword(call, "keepdims")
        along_row = axis is not None and source.code(axis) in ("1", "-1")
        if not along_row or keeps is None or source.code(keeps) != "True":
            raise NotApplicable(f"line {line} does not reduce along the row with keepdims=True")
    elif called not in ROW_BY_ROW and called not in CUTILE.program_ids and not casts(call):
        raise NotApplicable(f"line {line} calls `{source.code(call.func)}`, which may mix rows")


def _edge(shape: cst.BaseExpression | None, line: int) -> Iterator[cst.Integer]:
    """The leading `1` of a shape of two dimensions."""
    sizes = elements(shape)
    first = sizes[0] if sizes else None
    if len(sizes) != 2 or not isinstance(first, cst.Integer) or first.evaluated_value != 1:
        raise NotApplicable(f"the tile at line {line} is not one row")
    yield first


def _first(values: Sequence[cst.BaseExpression]) -> cst.BaseExpression | None:
    return values[0] if values else None
