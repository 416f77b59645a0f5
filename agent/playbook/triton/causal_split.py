"""Split the loop of a causal attention where the diagonal begins.

When: a Triton kernel with `tl.dot` in a loop over blocks of columns, from 0, that compares columns
    with the rows of its block in every round: `tl.where(cols <= rows, scores, ...)`.
Do: run the loop twice: over the blocks that end before the first row, without the comparison, and
    from there on, with it. Where the grid shows that the first row exists, the bounds that compare
    columns with the length go too.
Risk: none to results: what is left out was true for every element. The kernel is longer, and two
    loops fill the pipeline twice, which short sequences do not gain back.
Source: Triton's attention tutorial makes the same two stages. With blocks of 128 rows and 64
    columns, 240 of the 272 rounds that 2048 positions take lie below the diagonal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.host import HostView, language, launches_in_sight
from agent.analysis.triton.index_ranges import RANGES, belongs_to, holds_at, span_of, steps_of
from agent.analysis.triton.program_ids import unused
from agent.playbook.base import Optimization
from agent.rewriting.triton.edits import Edit, removing, writing
from agent.syntax import Source, descendants, edited, keyword, positional

WHERE = "triton.language.where"


class CausalSplit(Optimization):
    """One loop that masks every block -> one without the mask, and one over the diagonal."""

    name = "causal-split"
    title = "causal split"
    backend = "triton"
    family = "masks"
    priority: ClassVar = {KernelClass.COMPUTE: 18, KernelClass.BALANCED: 18, KernelClass.MEMORY: 66}
    expected = "a few to 20 % of a causal attention; to be measured"
    measured = "H200, Triton 3.6: attention +0.6 %"
    hypothesis = "Below the diagonal a comparison and a selection for each score compute nothing."
    example: ClassVar[Params] = {}
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def prefix_kernel(
    q_ptr, k_ptr, out_ptr, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, DIM: tl.constexpr
):
    pid_m = tl.program_id(0)
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, DIM)
    q_ptrs = q_ptr + rows[:, None] * DIM + dims[None, :]
    q = tl.load(q_ptrs, mask=rows[:, None] < n, other=0.0)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, (pid_m + 1) * BLOCK_M, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        k_ptrs = k_ptr + cols[:, None] * DIM + dims[None, :]
        k = tl.load(k_ptrs, mask=cols[:, None] < n, other=0.0)
        scores = tl.dot(q, tl.trans(k))
        scores = tl.where(cols[None, :] <= rows[:, None], scores, 0.0)
        acc += tl.dot(scores, k)
    out_ptrs = out_ptr + rows[:, None] * DIM + dims[None, :]
    tl.store(out_ptrs, acc, mask=rows[:, None] < n)


def prefix(q, k):
    n, dim = q.shape
    out = torch.empty_like(q)
    grid = (triton.cdiv(n, 32),)
    prefix_kernel[grid](q, k, out, n, BLOCK_M=32, BLOCK_N=16, DIM=dim)
    return out
"""
    after = before.replace(
        """\
    for start in range(0, (pid_m + 1) * BLOCK_M, BLOCK_N):
""",
        """\
    diagonal = pid_m * BLOCK_M // BLOCK_N * BLOCK_N
    for start in range(0, diagonal, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        k_ptrs = k_ptr + cols[:, None] * DIM + dims[None, :]
        k = tl.load(k_ptrs)
        scores = tl.dot(q, tl.trans(k))
        acc += tl.dot(scores, k)
    for start in range(diagonal, (pid_m + 1) * BLOCK_M, BLOCK_N):
""",
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """One: every such loop."""
        self.apply(subject, {})
        return [{}]

    def apply(self, subject: Subject, params: Params) -> str:  # noqa: ARG002
        """Split the loops of every launched kernel that compare columns with rows."""
        source = subject.source
        edits: dict[cst.CSTNode, Edit] = {}
        reasons: list[str] = []
        for kernel in TRITON.launched(source):
            loops = [
                loop
                for loop in descendants(kernel.function.node.body, cst.For)
                if any(True for _ in TRITON.find(source, loop.body, TRITON.dots))
            ]
            if not loops:
                reasons.append(f"{kernel.name} does not multiply tiles in a loop")
            for loop in loops:
                try:
                    edits |= _split(source, kernel, loop)
                except NotApplicable as reason:
                    reasons.append(str(reason))
        if not edits:
            raise NotApplicable("; ".join(reasons[:2]) or "no Triton kernel is launched here")
        return source.rewrite(edits)


@dataclass(frozen=True)
class Causal:
    """A loop over columns, and the comparisons with rows in it."""

    loop: cst.For
    column: str
    """The loop's variable."""
    end: cst.BaseExpression
    step: str
    first_row: str
    """The first row of the block."""
    block: str
    axis: int
    """Of the grid, which counts the blocks of rows."""
    comparisons: tuple[cst.Comparison, ...]


def _split(source: Source, kernel: Kernel, loop: cst.For) -> dict[cst.CSTNode, Edit]:
    causal = _causal(source, loop)
    true = {*causal.comparisons, *_bounds(source, kernel, causal)}
    edits: dict[cst.CSTNode, Edit] = {}
    for comparison in causal.comparisons:
        edits |= _without(source, loop, comparison, true)
    for bound in true - set(causal.comparisons):
        try:
            edits |= _without(source, loop, bound, true)
        except NotApplicable:
            continue
    limit = unused(kernel, "diagonal")
    below = f"{causal.first_row} // {causal.step} * {causal.step}"
    if not _passes(source, causal):
        below = f"{language(source, kernel)}.minimum({below}, {source.code(causal.end)})"
    _, end, _ = positional(cst.ensure_type(loop.iter, cst.Call))
    first = edited(loop, edits | {end: writing(limit)})

    def edit(updated: cst.For) -> Any:
        call = cst.ensure_type(updated.iter, cst.Call)
        start = call.args[0].with_changes(value=cst.Name(limit))
        second = updated.with_changes(
            iter=call.with_changes(args=[start, *call.args[1:]]), leading_lines=()
        )
        line = cst.ensure_type(cst.parse_statement(f"{limit} = {below}"), cst.SimpleStatementLine)
        line = line.with_changes(leading_lines=first.leading_lines)
        return cst.FlattenSentinel([line, first.with_changes(leading_lines=()), second])

    return {loop: edit}


def _causal(source: Source, loop: cst.For) -> Causal:
    line = source.line(loop)
    given = positional(loop.iter) if isinstance(loop.iter, cst.Call) else ()
    if (
        not isinstance(loop.iter, cst.Call)
        or source.name(loop.iter.func) not in RANGES
        or len(given) != 3
        or source.code(given[0]) != "0"
        or not isinstance(loop.target, cst.Name)
        or loop.orelse is not None
    ):
        raise NotApplicable(f"the loop at line {line} does not step through columns from 0")
    if any(True for _ in descendants(loop.body, cst.For)):
        raise NotApplicable(f"the loop at line {line} has loops of its own")
    column, step = loop.target.value, source.code(given[2])
    found: dict[tuple[str, str, int], list[cst.Comparison]] = {}
    for comparison in descendants(loop.body, cst.Comparison):
        rows = _rows(source, loop, comparison, column, step)
        if rows is not None:
            found.setdefault(rows, []).append(comparison)
    if len(found) != 1:
        raise NotApplicable(f"the loop at line {line} compares no columns with the rows of a block")
    (((first_row, block, axis), comparisons),) = found.items()
    return Causal(
        loop, column, given[1], step, first_row, block, axis, tuple(comparisons)
    )  # fmt: skip


def _rows(
    source: Source, loop: cst.For, comparison: cst.Comparison, column: str, step: str
) -> tuple[str, str, int] | None:
    """First row, block and axis of the grid, of `cols <= rows` or `rows >= cols`."""
    match comparison:
        case (
            cst.Comparison(
                left=cols,
                comparisons=[
                    cst.ComparisonTarget(
                        operator=cst.LessThan() | cst.LessThanEqual(), comparator=rows
                    )
                ],
            )
            | cst.Comparison(
                left=rows,
                comparisons=[
                    cst.ComparisonTarget(
                        operator=cst.GreaterThan() | cst.GreaterThanEqual(), comparator=cols
                    )
                ],
            )
        ):
            pass
        case _:
            return None
    inner, outer = span_of(source, cols), span_of(source, rows)
    if inner is None or outer is None or len(outer.starts) != 1 or inner.axis == outer.axis:
        return None
    if [source.code(start) for start in inner.starts] != [column] or inner.extent != step:
        return None
    (start,) = outer.starts
    steps = steps_of(source, start)
    if steps is None or steps.axis is None or not holds_at(source, start, loop):
        return None
    return source.code(start), steps.block, steps.axis


def _bounds(source: Source, kernel: Kernel, causal: Causal) -> Iterator[cst.Comparison]:
    """The comparisons of columns with a length that lies behind the first row of every block."""
    for comparison in descendants(causal.loop.body, cst.Comparison):
        match comparison.comparisons:
            case [cst.ComparisonTarget(operator=cst.LessThan(), comparator=bound)]:
                span = span_of(source, comparison.left)
            case _:
                continue
        length = source.code(value_of(source, bound))
        if (
            span is not None
            and [source.code(start) for start in span.starts] == [causal.column]
            and span.extent == causal.step
            and belongs_to(kernel, length)
            and _covers(source, kernel, causal, length)
        ):
            yield comparison


def _covers(source: Source, kernel: Kernel, causal: Causal, length: str) -> bool:
    """Whether every launch has just the programs whose first row is below the length."""
    try:
        views = [HostView(source, launch) for launch in launches_in_sight(source, kernel)]
    except NotApplicable:
        return False
    return all(view.is_cdiv(view.extent(causal.axis), length, causal.block) for view in views)


def _passes(source: Source, causal: Causal) -> bool:
    """Whether the loop is seen to run past the first row: `(pid + 1) * BLOCK` of `pid * BLOCK`."""
    match value_of(source, causal.end):
        case cst.BinaryOperation(
            left=cst.BinaryOperation(left=pid, operator=cst.Add(), right=cst.Integer(value="1")),
            operator=cst.Multiply(),
            right=block,
        ):
            return causal.first_row == f"{source.code(pid)} * {source.code(block)}"
    return False


# --- leaving out what is true -------------------------------------------------------------------


def _without(
    source: Source, loop: cst.For, node: cst.BaseExpression, true: set[cst.Comparison]
) -> dict[cst.CSTNode, Edit]:
    """The edits of a loop in which an expression is true everywhere.

    Raises:
        NotApplicable: it is used for more than selecting and masking.
    """
    around = next(source.ancestors(node))
    match around:
        case cst.BinaryOperation(operator=cst.BitAnd()) if around.left is node:
            if not _is_true(source, around.right, true):
                return {around: _taking("right")}
            return _without(source, loop, around, true)
        case cst.BinaryOperation(operator=cst.BitAnd()):
            if not _is_true(source, around.left, true):
                return {around: _taking("left")}
            return _without(source, loop, around, true)
        case cst.Arg():
            call = next(source.ancestors(around))
            if isinstance(call, cst.Call):
                return _without_argument(source, call, around)
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name() as target)]):
            return _without_name(source, loop, around, target, true)
    raise NotApplicable(f"line {source.line(node)} does more with a comparison than to select")


def _is_true(source: Source, node: cst.BaseExpression, true: set[cst.Comparison]) -> bool:
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.BitAnd):
        return _is_true(source, node.left, true) and _is_true(source, node.right, true)
    return any(value_of(source, node) is comparison for comparison in true)


def _taking(side: str) -> Edit:
    return lambda operation: getattr(operation, side)


def _without_argument(source: Source, call: cst.Call, arg: cst.Arg) -> dict[cst.CSTNode, Edit]:
    called = source.name(call.func)
    if called == WHERE and call.args[0] is arg and len(call.args) == 3:
        chosen = call.args[1].value
        statement = next(source.ancestors(call))
        match statement:
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))]) if (
                isinstance(chosen, cst.Name) and chosen.value == name
            ):
                return {_line_of(source, statement): removing}
        simple = isinstance(chosen, cst.Name | cst.Call | cst.Attribute) or chosen.lpar
        paren = {} if simple else {"lpar": [cst.LeftParen()], "rpar": [cst.RightParen()]}
        return {call: lambda updated: updated.args[1].value.with_changes(**paren)}
    if called in TRITON.loads and keyword(call, "mask") is arg.value:
        return {call: _unmasked}
    raise NotApplicable(f"line {source.line(call)} does more with a comparison than to select")


def _unmasked(call: cst.Call) -> cst.Call:
    kept = [a for a in call.args if a.keyword is None or a.keyword.value not in ("mask", "other")]
    if kept[-1] is not call.args[-1]:
        last = call.args[-1]
        kept[-1] = kept[-1].with_changes(
            comma=last.comma, whitespace_after_arg=last.whitespace_after_arg
        )
    return call.with_changes(args=kept)


def _without_name(
    source: Source, loop: cst.For, statement: cst.Assign, name: cst.Name, true: set[cst.Comparison]
) -> dict[cst.CSTNode, Edit]:
    """Leave out a mask that has a name of its own, and all its uses."""
    uses = [
        use
        for use in descendants(loop.body, cst.Name)
        if use.value == name.value and next(source.ancestors(use)) not in statement.targets
    ]
    if len(source.assignments(name)) > 1:
        raise NotApplicable(f"line {source.line(statement)} is not all that `{name.value}` is")
    edits: dict[cst.CSTNode, Edit] = {_line_of(source, statement): removing}
    for use in uses:
        edits |= _without(source, loop, use, true)
    return edits


def _line_of(source: Source, statement: cst.Assign) -> cst.SimpleStatementLine:
    line = next(source.ancestors(statement))
    if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1:
        return line
    raise NotApplicable(f"line {source.line(statement)} holds more than one statement")
