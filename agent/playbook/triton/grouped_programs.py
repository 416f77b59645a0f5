"""Let programs that run at the same time work on neighbouring tiles of a matrix product.

When: a Triton kernel that multiplies tiles in a loop and takes row and column of its tile from two
    program ids, or from one by `//` and `%`, in plain order.
Do: number the programs as they start, and let `tl.swizzle2d` hand out the tiles in groups of 4, 8
    or 16 rows: all rows of a group for one column, then for the next.
Risk: none to results: the new order visits each tile once, for every size of the grid. Small
    products, whose operands stay in the L2 cache anyway, only pay for the arithmetic.
Source: TileGym's cuTile playbook, item I, claims 5 to 15 % for large products; Triton's matrix
    multiplication tutorial reports 220 to 245 TFLOP/s on an A100.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.arguments import run_time
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.host import HostView, check_several, language, launches_in_sight
from agent.analysis.triton.program_ids import ProgramIndex, naming, program_indices
from agent.playbook.base import OfEachKernel
from agent.playbook.trial import PRODUCTS, P, TritonTrial
from agent.rewriting.common.insertion import unused
from agent.rewriting.common.preceding import preceded
from agent.rewriting.triton.edits import Edit, parenthesized, removing, writing
from agent.rewriting.triton.row_shapes import of_cast
from agent.syntax import Source, descendants, names_in, positional

SWEEP = (4, 8, 16)
SWIZZLE = "triton.language.swizzle2d"


class GroupedPrograms(OfEachKernel):
    """Plain order of the result's tiles -> groups of rows."""

    name = "grouped-programs"
    title = "grouped order of programs"
    backend = "triton"
    family = "order"
    priority: ClassVar = {KernelClass.COMPUTE: 20, KernelClass.BALANCED: 34}
    expected = "5 to 15 % for large products (TileGym); nothing for those that fit into L2"
    hypothesis = "Programs that run together share rows and columns, found in the L2 cache."
    idle_in_interpreter = "Triton's interpreter runs one program after the other"
    sweep = tuple({"group": group} for group in SWEEP)
    example: ClassVar[Params] = {"group": 8}
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):
    # Contiguous matrices only.
    pid_m = tl.program_id(0)
    pid_n = tl.program_id(1)
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        ks = start + tl.arange(0, BLOCK_K)
        a_mask = (rows[:, None] < M) & (ks[None, :] < K)
        b_mask = (ks[:, None] < K) & (cols[None, :] < N)
        a = tl.load(a_ptr + rows[:, None] * K + ks[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + ks[:, None] * N + cols[None, :], mask=b_mask, other=0.0)
        acc += tl.dot(a, b)
    c_mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc, mask=c_mask)


def matmul(a, b):
    (M, K), (_, N) = a.shape, b.shape
    c = torch.empty((M, N), device=a.device, dtype=torch.float32)
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
    matmul_kernel[grid](a, b, c, M, N, K, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)
    return c
"""
    after = before.replace(
        """\
    pid_m = tl.program_id(0)
    pid_n = tl.program_id(1)
""",
        """\
    num_m, num_n = tl.num_programs(0), tl.num_programs(1)
    pid = tl.program_id(0) + tl.program_id(1) * tl.num_programs(0)
    pid_m, pid_n = tl.swizzle2d(pid // num_n, pid % num_n, num_m, num_n, 8)
""",
    )

    trial = TritonTrial(
        kernel="matmul_kernel",
        types=(P, P, P, "i32", "i32", "i32", 64, 64, 32),
        function="matmul",
        calls=PRODUCTS,
    )

    def edits(self, subject: Subject, kernel: Kernel, params: Params) -> dict[cst.CSTNode, Edit]:
        """Reorder the tiles of a product that is summed up in a loop."""
        return _reordered(subject.source, kernel, int(params["group"]))


def _reordered(source: Source, kernel: Kernel, group: int) -> dict[cst.CSTNode, Edit]:
    body = kernel.function.node.body
    if TRITON.has(source, body, (SWIZZLE,)):
        raise NotApplicable(f"{kernel.name} swizzles its programs already")
    if not TRITON.sums_products(source, kernel):
        raise NotApplicable(f"{kernel.name} does not multiply tiles in a loop")
    indices = [_through_cast(source, kernel, i) for i in program_indices(source, kernel)]
    edges = _edges(source, kernel)
    for index in indices:
        if (line := _grouping(source, kernel, index)) is not None:
            raise NotApplicable(f"{kernel.name} groups its programs already: line {line}")
        if (split := _split(source, kernel, index, edges)) is not None:
            return _regrouped(source, kernel, index, split, edges, group)
    return _renumbered(source, kernel, indices, edges, group)


@dataclass(frozen=True)
class CastIndex(ProgramIndex):
    """`row = tl.program_id(0).to(tl.int64)`, or without the cast."""

    cast: str
    """`.to(tl.int64)`; empty without."""


def _through_cast(source: Source, kernel: Kernel, index: ProgramIndex) -> CastIndex:
    around = next(a for a in source.ancestors(index.call) if not isinstance(a, cst.Attribute))
    if index.name is None and isinstance(around, cst.Call) and of_cast(around) is index.call:
        name, line = naming(kernel, around)
        if name is not None:
            cast = source.code(around).removeprefix(source.code(index.call))
            return CastIndex(index.call, index.axis, name, line, cast)
    return CastIndex(index.call, index.axis, index.name, index.line, "")


def _grouping(source: Source, kernel: Kernel, index: ProgramIndex) -> int | None:
    """The line that divides a program's number by the tiles of a group: so many rows of all."""
    for division in descendants(kernel.function.node.body, cst.BinaryOperation):
        if not isinstance(division.operator, cst.FloorDivide) or index.name is None:
            continue
        match value_of(source, division.right):
            case cst.BinaryOperation(left=left, operator=cst.Multiply(), right=right) if (
                source.code(division.left) == index.name
                and any(
                    isinstance(e, cst.Integer) or source.code(e) in kernel.constants
                    for e in (left, right)
                )
            ):
                return source.line(division)
    return None


def _edges(source: Source, kernel: Kernel) -> tuple[str, str]:
    """The constants M and N of the accumulator."""
    body = kernel.function.node.body
    for call in TRITON.find(source, body, TRITON.accumulators):
        shape = TRITON.shapes[TRITON.called(source, call) or ""].of(call)
        shape = value_of(source, shape) if shape is not None else None
        if isinstance(shape, cst.Tuple | cst.List) and len(shape.elements) == 2:
            m, n = (source.code(e.value) for e in shape.elements)
            if m != n:
                return m, n
    raise NotApplicable(f"{kernel.name} has no accumulator whose edges have two names")


def _is_scaled(source: Source, kernel: Kernel, name: str, edge: str) -> bool:
    """Whether the kernel says `name * edge` or `edge * name`, as the first row of its tile."""
    pair = {name, edge}
    return any(
        isinstance(o.operator, cst.Multiply) and {source.code(o.left), source.code(o.right)} == pair
        for o in descendants(kernel.function.node.body, cst.BinaryOperation)
    )


# --- two program ids ----------------------------------------------------------------------------


def _renumbered(
    source: Source,
    kernel: Kernel,
    indices: Sequence[CastIndex],
    edges: tuple[str, str],
    group: int,
) -> dict[cst.CSTNode, Edit]:
    """Replace two program ids by row and column of a tile, computed from both."""
    rows, columns = (_scaling(source, kernel, indices, edge) for edge in edges)
    if len({rows.axis, columns.axis}) == 1 or abs(rows.axis - columns.axis) != 1:
        raise NotApplicable(f"row and column of {kernel.name} are not on axes side by side")
    own = [i for i in indices if i.axis in (rows.axis, columns.axis)]
    if len(own) != 2:
        raise NotApplicable(
            f"looks for one tl.program_id for the row and one for the column, and {kernel.name} "
            f"has {len(own)} in all"
        )
    check_several(source, kernel, (rows.axis, columns.axis))
    first = next(s for s in kernel.function.node.body.body if _holds(s, own))
    if not isinstance(first, cst.SimpleStatementLine):
        raise NotApplicable(f"line {source.line(first)} asks which program it is in a branch")
    tl = language(source, kernel)
    pid, num_m, num_n = (unused(kernel, name) for name in ("pid", "num_m", "num_n"))
    row = rows.name or unused(kernel, "pid_m")
    column = columns.name or unused(kernel, "pid_n")
    fast, slow = sorted((rows.axis, columns.axis))
    number = f"{tl}.program_id({fast}) + {tl}.program_id({slow}) * {tl}.num_programs({fast})"
    casts = {index.cast for index in (rows, columns) if index.cast}
    if len(casts) > 1:
        raise NotApplicable(f"row and column of {kernel.name} are of two types")
    lines = [
        f"{num_m}, {num_n} = {tl}.num_programs({rows.axis}), {tl}.num_programs({columns.axis})",
        f"{pid} = ({number}){casts.pop()}" if casts else f"{pid} = {number}",
        _swizzled(tl, pid, (row, column), (num_m, num_n), group) + _said_of((rows, columns)),
    ]
    edits: dict[cst.CSTNode, Edit] = {}
    for index, name in ((rows, row), (columns, column)):
        if index.line is None:
            edits[index.call] = writing(parenthesized(source, index.call, name))
        elif index.line is not first:
            edits[index.line] = removing
    keeps_first = first not in (rows.line, columns.line)
    edits[first] = lambda line: preceded(line, lines, keep=keeps_first, of_one=True)
    return edits


def _said_of(indices: Sequence[CastIndex]) -> str:
    """The comments behind the statements that are replaced, as one behind what replaces them."""
    lines = (index.line for index in indices if index.line is not None)
    comments = [c.value for line in lines if (c := line.trailing_whitespace.comment) is not None]
    said = "; ".join(comment.lstrip("# ") for comment in dict.fromkeys(comments))
    return f"  # {said}" if said else ""


def _scaling(source: Source, kernel: Kernel, indices: Sequence[CastIndex], edge: str) -> CastIndex:
    for index in indices:
        if _is_scaled(source, kernel, index.name or source.code(index.call), edge):
            return index
    raise NotApplicable(f"no program id of {kernel.name} is multiplied by {edge}")


def _holds(statement: cst.CSTNode, indices: Sequence[ProgramIndex]) -> bool:
    calls = {index.call for index in indices}
    return any(call in calls for call in descendants(statement, cst.Call))


# --- one program id -----------------------------------------------------------------------------


@dataclass(frozen=True)
class ProgramSplit:
    """`pid_m = pid // width` and `pid_n = pid % width`, or the other way round."""

    lines: tuple[cst.SimpleStatementLine, cst.SimpleStatementLine]
    """In the order of the file."""
    row: str
    column: str
    divisor: cst.BaseExpression
    rows_vary_faster: bool


def _split(
    source: Source, kernel: Kernel, index: ProgramIndex, edges: tuple[str, str]
) -> ProgramSplit | None:
    if index.name is None:
        return None
    found: dict[
        type[cst.BaseBinaryOp], tuple[str, cst.SimpleStatementLine, cst.BinaryOperation]
    ] = {}
    for line in kernel.function.node.body.body:
        match line:
            case cst.SimpleStatementLine(
                body=[
                    cst.Assign(
                        targets=[cst.AssignTarget(target=cst.Name(value=name))],
                        value=cst.BinaryOperation(left=cst.Name(value=left)) as operation,
                    )
                ]
            ) if left == index.name:
                found.setdefault(type(operation.operator), (name, line, operation))
    if not {cst.FloorDivide, cst.Modulo} <= found.keys():
        return None
    over, rest = found[cst.FloorDivide], found[cst.Modulo]
    if source.code(over[2].right) != source.code(rest[2].right):
        return None
    for row, column in ((over, rest), (rest, over)):
        if _is_scaled(source, kernel, row[0], edges[0]) and _is_scaled(
            source, kernel, column[0], edges[1]
        ):
            one, other = sorted((over[1], rest[1]), key=source.line)
            return ProgramSplit((one, other), row[0], column[0], over[2].right, row is rest)
    return None


def _regrouped(
    source: Source,
    kernel: Kernel,
    index: ProgramIndex,
    split: ProgramSplit,
    edges: tuple[str, str],
    group: int,
) -> dict[cst.CSTNode, Edit]:
    """Swizzle the tile of a program that took it from one number."""
    body = list(kernel.function.node.body.body)
    first, last = (body.index(line) for line in split.lines)
    for between in body[first + 1 : last]:
        if {split.row, split.column} & names_in(between):
            raise NotApplicable(f"line {source.line(between)} uses the tile before it is complete")
    tl = language(source, kernel)
    width = _cdiv_of(source, split.divisor)
    other = _other_factor(source, kernel, index, width, edges)
    text = _spelled(source, kernel, split.lines[0], other, tl)
    counts = (source.code(split.divisor), text)
    assert index.name is not None
    tile = (split.row, split.column)
    num_m, num_n = counts if split.rows_vary_faster else counts[::-1]
    line = _swizzled(tl, index.name, tile, (num_m, num_n), group)
    return {
        split.lines[0]: removing,
        split.lines[1]: lambda statement: preceded(statement, [line], keep=False),
    }


def _cdiv_of(source: Source, expression: cst.BaseExpression) -> tuple[str, str]:
    """`N` and `BLOCK_N` of `tl.cdiv(N, BLOCK_N)`, or of a name for it."""
    behind = value_of(source, expression)
    if isinstance(behind, cst.Call) and source.name(behind.func) in TRITON.cdivs:
        values = [source.code(value_of(source, value)) for value in positional(behind)]
        if len(values) == 2:
            return values[0], values[1]
    raise NotApplicable(f"`{source.code(expression)}` is no cdiv of the kernel's parameters")


def _other_factor(
    source: Source,
    kernel: Kernel,
    index: ProgramIndex,
    width: tuple[str, str],
    edges: tuple[str, str],
) -> tuple[str, str]:
    """Length and block of the other number of tiles, the grid of every launch being a product."""
    found: set[tuple[str, str]] = set()
    for launch in launches_in_sight(source, kernel):
        view = HostView(source, launch)
        match view.extent(index.axis):
            case cst.BinaryOperation(left=left, operator=cst.Multiply(), right=right):
                sides = [(left, right), (right, left)]
            case _:
                sides = []
        found |= {
            (length, block)
            for own, other in sides
            if view.is_cdiv(own, *width)
            for length in run_time(kernel)
            for block in edges
            if block != width[1] and view.is_cdiv(other, length, block)
        }
    if len(found) != 1:
        raise NotApplicable(
            f"the grid of {kernel.name} is not seen to be cdiv({', '.join(width)}) times another"
        )
    (other_factor,) = found
    return other_factor


def _spelled(
    source: Source, kernel: Kernel, place: cst.CSTNode, size: tuple[str, str], tl: str
) -> str:
    """A number of tiles as the kernel names it before a statement, or computed anew."""
    for line in kernel.function.node.body.body:
        if line is place:
            break
        match line:
            case cst.SimpleStatementLine(
                body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=v)]
            ):
                try:
                    if _cdiv_of(source, v) == size:
                        return name
                except NotApplicable:
                    continue
    return f"{tl}.cdiv({', '.join(size)})"


def _swizzled(tl: str, pid: str, tile: tuple[str, str], counts: tuple[str, str], group: int) -> str:
    (row, column), (num_m, num_n) = tile, counts
    place = f"{pid} // {num_n}, {pid} % {num_n}"
    return f"{row}, {column} = {tl}.swizzle2d({place}, {num_m}, {num_n}, {group})"
