"""Hold a row in one tile instead of loading it anew in each pass.

When: a cuTile kernel that steps through the same row in two loops or more, tile by tile, as
    normalizations do: `for j in range(ct.num_tiles(x, axis=1, shape=(1, TILE)))`.
Do: write the kernel once more without its loops, for rows that one tile of up to 8192 elements
    holds, and load each tile once. Longer rows have the kernel they had.
Risk: the order of sums changes. A whole row takes registers: with an occupancy hint that leaves
    few, it spills. Each power of two of the row length is compiled anew.
Source: TileGym's normalizations hold a row whole. Measured on an NVIDIA H100 with cuda-tile 1.7, by
    hand on cutile-python's LayerNorm in bf16, which reads a row three times: 0.0768 to 0.0514 ms
    for 4096 x 8192, with a static length and an occupancy of 4. The compiler loads a row anew where
    anything is stored in between, also without loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import libcst as cst

from agent.analysis.common.builtin_names import check_builtins
from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.each_kernel import of_each
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.module_names import reached_as
from agent.analysis.common.purity import is_pure
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile.blocks import launches
from agent.analysis.cutile.dialect import CUTILE
from agent.analysis.cutile.row_passes import (
    RowPasses,
    at_zero,
    check_ends,
    in_place_of,
    loads_in,
    row_passes,
    steps_of,
)
from agent.playbook.base import REORDERED, Optimization
from agent.playbook.trial import F32, TileTrial
from agent.rewriting.common.counted_rounds import or_counted
from agent.rewriting.common.insertion import free_name
from agent.rewriting.cutile.hints import hint_setting
from agent.syntax import Source, argument, descendants, edited, names_in

LEAST, MOST = 16, 8192
"""Elements of a row that one tile holds."""
HINT, OCCUPANCIES = "occupancy", (2, 4)
COPY = "_whole"
"""What the name of the copy ends with."""


class RowInOneTile(Optimization):
    """`for j in range(tiles): ct.load(x, (row, j), ...)`, twice -> one load of the whole row."""

    name = "row-in-one-tile"
    title = "row in one tile"
    backend = "cutile"
    family = "reuse"
    priority: ClassVar = {KernelClass.MEMORY: 290, KernelClass.BALANCED: 290}
    expected = "LayerNorm 4096 x 8192 in bf16 on an H100, by hand, with a static length: 1.5x"
    hypothesis = "The row is read from memory once and stays where it is computed with."
    changes_rounding = REORDERED
    example: ClassVar[Params] = {"occupancy": 0}
    before = """\
import cuda.tile as ct
import torch


@ct.kernel
def l2_kernel(x, y, TILE: ct.Constant[int]):
    row = ct.bid(0)
    tiles = ct.num_tiles(x, axis=1, shape=(1, TILE))
    squares = ct.full((1, TILE), 0.0, dtype=ct.float32)
    for j in range(tiles):
        part = ct.load(x, index=(row, j), shape=(1, TILE), padding_mode=ct.PaddingMode.ZERO)
        squares += part * part
    norm = ct.sqrt(ct.sum(squares, axis=1, keepdims=True))
    for j in range(tiles):
        part = ct.load(x, index=(row, j), shape=(1, TILE), padding_mode=ct.PaddingMode.ZERO)
        ct.store(y, index=(row, j), tile=(part / norm).astype(y.dtype))


def l2_normalize(x):
    y, stream = torch.empty_like(x), torch.cuda.current_stream()
    ct.launch(stream, (x.shape[0],), l2_kernel, (x, y, 1024))
    return y
"""
    after = before.replace(
        "@ct.kernel\n",
        """\
@ct.kernel
def l2_kernel_whole(x, y, TILE: ct.Constant[int]):
    row = ct.bid(0)
    squares = ct.full((1, TILE), 0.0, dtype=ct.float32)
    held = ct.load(x, index=(row, 0), shape=(1, TILE), padding_mode=ct.PaddingMode.ZERO)
    part = held
    squares += part * part
    norm = ct.sqrt(ct.sum(squares, axis=1, keepdims=True))
    part = held
    ct.store(y, index=(row, 0), tile=(part / norm).astype(y.dtype))


@ct.kernel
""",
    ).replace(
        "    ct.launch(stream, (x.shape[0],), l2_kernel, (x, y, 1024))\n",
        """\
    if x.shape[1] <= 8192:
        row_tile = 1 << (max(x.shape[1], 16) - 1).bit_length()
        ct.launch(stream, (x.shape[0],), l2_kernel_whole, (x, y, row_tile))
    else:
        ct.launch(stream, (x.shape[0],), l2_kernel, (x, y, 1024))
""",
    )

    trial = TileTrial(kernel="l2_kernel", arguments=((F32, 2), (F32, 2), 1024))

    def variants(self, subject: Subject) -> Sequence[Params]:
        """The kernel's own hint, and others for the copy: a whole row needs more registers."""
        or_counted(subject, CUTILE, _language, lambda each: _passes(each.source))
        return [{"occupancy": value} for value in (0, *OCCUPANCIES)]

    def apply(self, subject: Subject, params: Params) -> str:
        """Write a copy of every kernel that qualifies, and launch it for rows that it holds."""
        occupancy = int(params["occupancy"])
        return str(
            or_counted(subject, CUTILE, _language, lambda each: self._rewritten(each, occupancy))
        )

    def _rewritten(self, subject: Subject, occupancy: int) -> str:
        source = subject.source
        edits: dict[cst.CSTNode, Any] = {}
        for passes in _passes(source):
            function = passes.kernel.function.node
            name = free_name(source, f"{function.name.value}{COPY}")
            edits[function] = _preceded(source, function, _copy(subject, passes, name, occupancy))
            tile = free_name(source, "row_tile")
            for launch in passes.kernel.launches:
                edits |= _guarded(source, passes, launch, name, tile)
        return source.rewrite(edits)


def _language(source: Source, kernel: Kernel) -> str | None:
    return reached_as(source, "cuda.tile", kernel.function.node)


def _preceded(source: Source, function: cst.FunctionDef, copy: str) -> Any:
    """The edit that writes a copy above its kernel, where it sees all that the kernel sees."""
    top = source.enclosing(function) is None
    written = cst.parse_statement(copy)
    written = written.with_changes(leading_lines=[cst.EmptyLine(indent=False)] * (2 if top else 1))
    return lambda updated: cst.FlattenSentinel([written, updated])


def _passes(source: Source) -> list[RowPasses]:
    """The kernels that can be changed. Raises `NotApplicable` with the reasons when none can."""
    return of_each(
        CUTILE.chosen(source), lambda kernel: _of(source, kernel), "the file holds no cuTile kernel"
    )


def _of(source: Source, kernel: Kernel) -> RowPasses:
    if any(other.name == f"{kernel.name}{COPY}" for other in CUTILE.kernels(source)):
        raise NotApplicable(f"{kernel.name} has a copy for whole rows")
    passes = row_passes(source, kernel)
    for launch in launches(source, kernel):
        _check_launch(source, launch, passes)
        check_ends(source, passes, launch)
    return passes


def _check_launch(source: Source, launch: Launch, passes: RowPasses) -> None:
    """Refuse a launch that cannot be made twice, or whose grid depends on the tile."""
    line, tile = source.line(launch.node), passes.tile
    check_builtins(source, launch.node, "max")
    given = launch.arguments.get(passes.length.parameter)
    if given is None or not is_pure(source, given):
        name = passes.length.parameter
        raise NotApplicable(f"the launch at line {line} does not give `{name}` by a name")
    if not isinstance(argument(launch.node, 2, "kernel"), cst.Name):
        raise NotApplicable(f"the launch at line {line} gives its kernel hints of its own")
    size = launch.arguments.get(tile)
    written = argument(launch.node, 3, "kernel_args")
    shown = isinstance(written, cst.Tuple) and any(e.value is size for e in written.elements)
    if size is None or not shown:
        raise NotApplicable(f"the launch at line {line} does not give `{tile}` in plain sight")
    names = names_in(size)
    grid = source.resolve(launch.grid)
    if names.intersection(name.value for name in descendants(grid, cst.Name)):
        raise NotApplicable(f"the grid of the launch at line {line} depends on `{tile}`")
    around = next(source.ancestors(launch.node))
    if not isinstance(around, cst.Expr) or _line_of(source, launch) is None:
        raise NotApplicable(f"the launch at line {line} is part of a larger statement")


def _line_of(source: Source, launch: Launch) -> cst.SimpleStatementLine | None:
    """The line that is a launch and nothing else."""
    for around in source.ancestors(launch.node):
        if isinstance(around, cst.SimpleStatementLine):
            return around if len(around.body) == 1 else None
    return None


# --- what is written ----------------------------------------------------------------------------


def _copy(subject: Subject, passes: RowPasses, name: str, occupancy: int) -> str:
    """The kernel without its loops, which loads once what several of them load alike."""
    source, function = subject.source, passes.kernel.function.node
    hinted = hint_setting(subject, passes.kernel, HINT, occupancy)
    whole = {
        text: free_name(source, f"held{'' if not n else n + 1}")
        for n, text in enumerate(passes.again)
    }
    body: list[cst.CSTNode] = []
    loaded: set[str] = set()
    for statement in function.body.body:
        if not isinstance(statement, cst.For):
            body += [] if _counts_tiles(source, statement, passes) else [statement]
            continue
        lead = list(statement.leading_lines)
        calls = [each for each in loads_in(source, statement) if each[2] in whole]
        for inner in statement.body.body:
            for text in [text for line, _, text in calls if line is inner]:
                if text not in loaded:
                    loaded.add(text)
                    body.append(cst.parse_statement(f"{whole[text]} = {text}"))
            names: dict[cst.CSTNode, cst.CSTNode] = {
                call: cst.Name(whole[text]) for line, call, text in calls if line is inner
            }
            part = at_zero(source, statement, inner, names)
            if isinstance(part, cst.SimpleStatementLine):
                part = part.with_changes(leading_lines=[*lead, *part.leading_lines])
            body.append(part)
            lead = []
    decorators = [
        hinted(d) if d is passes.kernel.decorator and occupancy else d for d in function.decorators
    ]
    written = function.with_changes(
        name=cst.Name(name),
        body=function.body.with_changes(body=body),
        decorators=decorators,
        leading_lines=(),
        lines_after_decorators=(),
    )
    return cst.Module([]).code_for_node(written)


def _counts_tiles(source: Source, statement: cst.CSTNode, passes: RowPasses) -> bool:
    """Whether a statement assigns a number of tiles for which only the loops ask."""
    match statement:
        case cst.SimpleStatementLine(
            body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name() as target)])]
        ):
            assignments = source.assignments(target)
            asked = {steps_of(loop) for loop in passes.loops}
            uses = source.uses(assignments[0]) if len(assignments) == 1 else ()
            return bool(uses) and all(use in asked for use in uses)
    return False


def _guarded(
    source: Source, passes: RowPasses, launch: Launch, name: str, tile: str
) -> dict[cst.CSTNode, Any]:
    """The edit of a launch: the copy where one tile holds the row, the kernel where none does."""
    statement = _line_of(source, launch)
    assert statement is not None  # see `_check_launch`
    length = source.code(launch.arguments[passes.length.parameter])
    if passes.length.axis is not None:
        length += f".shape[{passes.length.axis}]"
    kernel = argument(launch.node, 2, "kernel")
    assert kernel is not None  # or it would be no launch
    size = launch.arguments[passes.tile]
    others: dict[cst.CSTNode, cst.CSTNode] = {kernel: cst.Name(name), size: cst.Name(tile)}

    def edit(line: cst.SimpleStatementLine) -> cst.If:
        plain = line.with_changes(leading_lines=())
        whole = edited(statement, in_place_of(others))
        set_tile = cst.parse_statement(f"{tile} = 1 << (max({length}, {LEAST}) - 1).bit_length()")
        return cst.If(
            cst.parse_expression(f"{length} <= {MOST}"),
            cst.IndentedBlock([set_tile, whole.with_changes(leading_lines=())]),
            cst.Else(cst.IndentedBlock([plain])),
            leading_lines=line.leading_lines,
        )

    return {statement: edit}
