"""Let one program work on several short rows.

When: a Triton kernel with one program a row, whose rows are short: below some 1024 elements a
    program's warps have little to load, and programs come and go.
Do: `row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]`, `tl.arange(0, BLOCK)[None, :]`,
    `axis=1, keep_dims=True` in the reductions, a mask for the rows behind the last one, and a grid
    of `triton.cdiv(n_rows, rows)`. As many rows as fill a program with 1024 to 8192 elements, and
    one row of that length or more; warps by the elements, or so many times what the launch gives a
    row. Tiles of two dimensions, as of a token's heads, get a third one: the rows of the last axis
    of the grid, and no more of them than there are.
Risk: the order of sums changes. Each line is checked to keep rows apart: what reads one row's
    result in another, branches by the row or counts them with atomics is refused.
Source: lightllm's copies that quantize have a program for each head of each token: by hand, 8 heads
    a program take 0.034 ms for 0.162 on an NVIDIA H200. Liger's RMS norm gives a program 16 rows
    where a row has at most 256 columns; attorch chooses rows by the length of a row; Helion allows
    up to 8 rows a program while at least 8 waves of programs are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, islice
from math import inf, prod
from typing import ClassVar

import libcst as cst

from agent.analysis.common.builtin_names import check_builtins
from agent.analysis.common.derived_names import all_values
from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.each_kernel import edits_of_each, of_each
from agent.analysis.common.host_integers import is_integer
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.purity import is_pure
from agent.analysis.common.reaching_definitions import definition
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.dialect import ROUNDING, TRITON
from agent.analysis.triton.host import HostView, language, launches_in_sight, triton_module
from agent.analysis.triton.program_ids import program_indices
from agent.analysis.triton.spans import holds_at
from agent.analysis.triton.tuners import check_untuned
from agent.launches import power_of_two
from agent.playbook.base import REORDERED, Optimization
from agent.playbook.trial import P, TritonTrial
from agent.rewriting.common.preceding import preceded
from agent.rewriting.triton.edits import (
    Edit,
    giving,
    with_parameters,
    writing,
)
from agent.rewriting.triton.grid import changeable, check_own_grid, check_unchanged, count_at
from agent.rewriting.triton.launch_options import (
    MOST_WARPS,
    check_shown,
    is_plain_or_ramp,
    ramp,
)
from agent.rewriting.triton.persistence import count_of
from agent.rewriting.triton.row_shapes import tile_form
from agent.rewriting.triton.rows import RowKernel, row_kernel
from agent.syntax import Source, descendants, is_commented, names_in

SWEEP = ((1024, 256), (1024, 512), (2048, 512), (2048, 1024),
         (4096, 512), (4096, 1024), (8192, 1024), (8192, 2048))  # fmt: skip
"""Elements of a program and of a warp: 8 to 64 of a thread."""
OF_FEW = ((256, 128), (512, 128), (512, 256))
"""More, where the rows of an axis, as the heads of a token, have no more elements together."""
OPTION = "num_warps"


class RowsPerProgram(Optimization):
    """`row = tl.program_id(0)` -> `row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]`."""

    name = "rows-per-program"
    title = "rows per program"
    backend = "triton"
    family = "rows"
    priority: ClassVar = {KernelClass.MEMORY: 27, KernelClass.BALANCED: 33, KernelClass.COMPUTE: 72}
    expected = "large for rows below about 512 elements, nothing for long ones"
    hypothesis = "A program with several rows has enough loads in flight to hide their latency."
    changes_rounding = REORDERED
    example: ClassVar[Params] = {"elements": 2048, "elements_per_warp": 512}
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def resize_kernel(x_ptr, length_ptr, y_ptr, stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < n_cols, other=0.0)
    length = tl.load(length_ptr + row)
    factor = length / tl.sqrt(tl.sum(x * x, axis=0))
    tl.store(y_ptr + row * stride + cols, x * factor, mask=cols < n_cols)


def resize(x, length):
    y = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = triton.next_power_of_2(n_cols)
    resize_kernel[(n_rows,)](x, length, y, x.stride(0), n_cols, BLOCK=block)
    return y
"""
    after = """\
import torch
import triton
import triton.language as tl


@triton.jit
def resize_kernel(
    x_ptr,
    length_ptr,
    y_ptr,
    stride,
    n_cols,
    BLOCK: tl.constexpr,
    n_rows,
    ROWS: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    row_mask = row < n_rows
    cols = tl.arange(0, BLOCK)[None, :]
    x = tl.load(x_ptr + row * stride + cols, mask=(cols < n_cols) & row_mask, other=0.0)
    length = tl.load(length_ptr + row, mask=row_mask)
    factor = length / tl.sqrt(tl.sum(x * x, axis=1, keep_dims=True))
    tl.store(y_ptr + row * stride + cols, x * factor, mask=(cols < n_cols) & row_mask)


def resize(x, length):
    y = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = triton.next_power_of_2(n_cols)
    rows = max(2048 // block, 1)
    resize_kernel[(triton.cdiv(n_rows, rows),)](
        x,
        length,
        y,
        x.stride(0),
        n_cols,
        BLOCK=block,
        n_rows=n_rows,
        ROWS=rows,
        num_warps=min(max(rows * block // 512, 1), 32),
    )
    return y
"""

    trial = TritonTrial(
        kernel="resize_kernel",
        types=(P, P, P, "i32", "i32", 128),
        function="resize",
        calls=(((3, 1024), (3,)), ((5, 77), (5,)), ((1, 1), (1,)), ((130, 20), (130,))),
        types_after=(P, P, P, "i32", "i32", 128, "i32", 16),
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """Elements of a program and of a warp."""
        if subject.hardware.interpreted:
            raise NotApplicable("Triton's interpreter has no warps that a short row leaves idle")
        self.apply(subject, self.example)
        least, most = _seen_elements(subject)
        pairs = (*OF_FEW, *SWEEP) if most < inf else SWEEP
        sweep = [(whole, part) for whole, part in pairs if 2 * least <= whole <= most]
        if not sweep:
            raise NotApplicable(f"each row that tests launch fills a program: {least} elements")
        return [{"elements": whole, "elements_per_warp": part} for whole, part in sweep]

    def apply(self, subject: Subject, params: Params) -> str:
        """Rewrite every launched kernel that has one row a program, and its launches."""
        source = subject.source
        taken = set[cst.CSTNode]()

        def widened(kernel: Kernel) -> dict[cst.CSTNode, Edit]:
            found = _widened(source, kernel, params)
            if taken & found.keys():
                raise NotApplicable(f"{kernel.name} shares a line with another kernel's launch")
            taken.update(found)
            return found

        otherwise = "no Triton kernel is launched here"
        return source.rewrite(edits_of_each(TRITON.chosen(source), widened, otherwise))


def _seen_elements(subject: Subject) -> tuple[int, float]:
    """The fewest elements that tests were seen to give a row, and the most that all rows along the
    second axis or a later one have; 0 and no limit where a kernel was not seen."""
    source, least, most = subject.source, list[int](), list[float]()
    for kernel in TRITON.chosen(source):
        try:
            read = _read(source, kernel)
        except NotApplicable:
            continue
        seen = [
            (prod(each.integers[block] for block in read.blocks), each.grid)
            for each in subject.launches
            if each.kernel == kernel.name and each.integers.keys() >= {*read.blocks}
        ]
        least.append(min((elements for elements, _ in seen), default=0))
        axis = read.axis
        counted = [n * power_of_two(grid[axis]) for n, grid in seen if axis and axis < len(grid)]
        most.append(max(counted, default=inf))
    return min(least, default=0), max(most, default=inf)


def _read(source: Source, kernel: Kernel) -> RowKernel:
    """A kernel with several rows a program, along the last axis of the grid that allows it.

    Of tiles of two dimensions: the rows of that axis lie next to each other in most arrays.
    """
    two = len(tile_form(source, kernel).blocks) > 1
    axes = sorted({index.axis for index in program_indices(source, kernel)}) if two else [0]

    def along(axis: int) -> RowKernel:
        return row_kernel(source, kernel, axis, count_of(source, kernel, axis))

    return of_each(reversed(axes), along, f"{kernel.name} never asks which program it is")[0]


def _widened(source: Source, kernel: Kernel, params: Params) -> dict[cst.CSTNode, Edit]:
    check_untuned(source, [kernel], "the warps")
    launches = launches_in_sight(source, kernel)
    read = _read(source, kernel)
    added = [] if read.is_counted else [read.names.count]
    constexpr = f"{language(source, kernel)}.constexpr"
    new = [*added, f"{read.names.rows}: {constexpr}"]
    parameters = with_parameters(source, kernel, new, default="None")
    edits = {**read.edits, **parameters}
    for launch in launches:
        more = _launched(source, read, launch, params)
        if edits.keys() & more.keys():
            number = source.line(launch.node)
            raise NotApplicable(f"the launch at line {number} shares its grid or line with another")
        edits |= more
    return edits


def _launched(
    source: Source, read: RowKernel, launch: Launch, params: Params
) -> dict[cst.CSTNode, Edit]:
    kernel, axis, line = read.kernel, read.axis, source.line(launch.node)
    view = HostView(source, launch)
    grid = view.grid
    if axis >= len(grid.extents):
        raise NotApplicable(f"the grid at line {line} has no axis {axis}")
    extent = grid.extents[axis]
    blocks = [_block(source, launch, name) for name in read.blocks]
    check_builtins(source, launch.node, "max", "min")
    n_rows = count_at(source, launch, grid, extent)
    check_own_grid(source, kernel, launch)
    written, place = _written(source, launch, extent, blocks, at_launch=axis > 0)
    triton = triton_module(source, kernel)
    rows = _own_name(source, launch, "rows")
    above: list[str] = []
    named: dict[cst.CSTNode, Edit] = {}
    keywords = {} if read.is_counted else {read.names.count: n_rows}
    lengths = []
    for number, given in enumerate(blocks):
        length = source.code(given)
        if not isinstance(given, cst.Name | cst.Integer):
            name = _own_name(source, launch, "block" if not number else "columns")
            above.append(f"{name} = {length}")
            named[given] = writing(name)
            length = name
        lengths.append(length)
    block = " * ".join(lengths)
    divisor = block if len(lengths) == 1 else f"({block})"
    several = f"{params['elements']} // {divisor}"
    if axis:  # of heads there are few
        several = f"min({several}, {triton}.next_power_of_2({n_rows}))"
    above.append(f"{rows} = max({several}, 1)")
    keywords[read.names.rows] = rows
    check_shown(source, launch, OPTION)
    warps = launch.hints.get(OPTION)
    if OPTION not in launch.arguments and is_plain_or_ramp(source, warps):
        keywords[OPTION] = ramp(f"{rows} * {block}", int(params["elements_per_warp"]))
    elif OPTION not in launch.arguments and isinstance(warps, cst.Name):  # that of one row
        maybe = f"{warps.value} and " if _may_be_none(source, warps) else ""
        keywords[OPTION] = f"{maybe}min({rows} * {warps.value}, {MOST_WARPS})"
    fewer = f"{triton}.cdiv({source.code(extent)}, {rows})"
    if written is not extent:
        extents = [fewer if each is extent else source.code(each) for each in grid.extents]
        fewer = f"({', '.join(extents)}{',' if len(extents) == 1 else ''})"
    return named | {
        written: writing(fewer),
        launch.node: giving(source, launch.node, keywords),
        place: lambda updated: preceded(updated, above),
    }


def _written(
    source: Source,
    launch: Launch,
    extent: cst.BaseExpression,
    blocks: Sequence[cst.BaseExpression],
    *,
    at_launch: bool,
) -> tuple[cst.BaseExpression, cst.SimpleStatementLine]:
    """What is written in place of the extent, and above which statement the rows are computed.

    A grid that is made before the lengths of its tiles are known is written out at its launch.

    Args:
        source: the file.
        launch: whose grid it is.
        extent: of the grid.
        blocks: the lengths.
        at_launch: the extent has to be known above that statement, too: of a function that makes
            the grid it is what it is at the launch.
    """
    grid = HostView(source, launch).grid
    if at_launch:
        for around in source.ancestors(launch.node):
            if isinstance(around, cst.SimpleStatementLine):
                break
            if isinstance(around, cst.Lambda | cst.BaseComp):
                line = source.line(launch.node)
                raise NotApplicable(f"the launch at line {line} stands in an expression")
        if grid.meta is not None:
            return extent, _place(source, launch, launch.node, blocks)
    try:
        return extent, _place(source, launch, grid.node, blocks)
    except NotApplicable:
        pure = all(is_pure(source, each, ROUNDING) for each in grid.extents)
        if grid.meta is not None or not pure or not isinstance(launch.grid, cst.Name):
            raise
    for each in grid.extents:
        check_unchanged(source, launch, each)
    return launch.grid, _place(source, launch, launch.grid, blocks)


def _block(source: Source, launch: Launch, name: str) -> cst.BaseExpression:
    """What a launch gives for a length of its tiles. Raises `NotApplicable` where it hides it."""
    given = launch.arguments.get(name)
    if given is None or not is_pure(source, given, ROUNDING) or is_commented(given):
        raise NotApplicable(f"the launch at line {source.line(launch.node)} does not show {name}")
    return given


def _may_be_none(source: Source, warps: cst.Name) -> bool:
    """Whether what a launch gives as warps may be `None`, for Triton's own choice.

    What a function of the file or of another one returns is taken for a number.
    """
    found = definition(source, warps.value, warps)
    if found is not None and isinstance(found.node, cst.Param):
        return not is_integer(source, warps)
    values = [*all_values(source, warps)]
    asked = [c.func.attr.value for value in values for c in descendants(value, cst.Call)
             if isinstance(c.func, cst.Attribute)]  # fmt: skip
    return not values or "get" in asked or any("None" in names_in(value) for value in values)


def _own_name(source: Source, launch: Launch, wanted: str) -> str:
    """A name for one launch: the next of the same function has another, which may be made first."""
    launches = [x for k in TRITON.launched(source) for x in k.launches]
    place = [x.node for x in launches if x.function is launch.function].index(launch.node)
    used = names_in(source.module)
    names = (wanted if n == 1 else f"{wanted}_{n}" for n in count(1))
    return next(islice((name for name in names if name not in used), place, None))


def _place(
    source: Source, launch: Launch, grid: cst.CSTNode, blocks: Sequence[cst.BaseExpression]
) -> cst.SimpleStatementLine:
    """The statement above which the rows are computed: the launch, or that of its grid."""
    late: list[cst.BaseExpression] = []
    for around in source.ancestors(grid):
        if isinstance(around, cst.SimpleStatementSuite):
            line = source.line(grid)
            raise NotApplicable(f"line {line} has its launch behind a colon: nothing fits above it")
        if isinstance(around, cst.SimpleStatementLine):
            apart = around not in source.ancestors(launch.node)
            late = [
                block
                for block in blocks
                if not holds_at(source, block, around) or (apart and changeable(block))
            ]
            if source.enclosing(around) is not launch.function or late:
                break
            return around
    line, first = source.line(grid), source.code((late or blocks)[0])
    raise NotApplicable(f"{first} is not known yet where line {line} makes the grid")
