"""Store the result of a matrix product in two halves.

When: a Triton kernel that multiplies tiles in a loop and stores one tile of two dimensions behind
    it, masked by nothing but the ends of the array, with offsets of 32 bits.
Do: `tl.reshape`, `tl.permute` and `tl.split` the tile into its left and right half, and store one
    after the other. Each half passes through half of the shared memory.
Risk: none to results.
Source: Triton's persistent matmul tutorial, `EPILOGUE_SUBTILE`; 5 to 15 % is claimed for it with
    TMA. Compiled with Triton 3.6 at 128 x 256 x 64, it does not lower the kernel's shared memory,
    so only a timing tells. NVIDIA says that it may not help on Tile IR.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.host import language
from agent.analysis.triton.program_ids import unused
from agent.analysis.triton.tiles import STORE, TileAccess, tile_access
from agent.playbook.base import Optimization
from agent.rewriting.triton.edits import Edit, preceded
from agent.syntax import Source, argument, descendants

SPLIT = "triton.language.split"
WIDE = ("int64", "uint64")


class EpilogueHalves(Optimization):
    """`tl.store(c_ptrs, c)` -> a store of each half of `c`."""

    name = "epilogue-halves"
    title = "epilogue in halves"
    backend = "triton"
    family = "epilogue"
    priority: ClassVar = {KernelClass.COMPUTE: 52, KernelClass.BALANCED: 60}
    expected = "a few percent of a product with large tiles, or nothing"
    hypothesis = "A half of the result needs half of the room on its way out."
    example: ClassVar[Params] = {}
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STEP: tl.constexpr
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, STEP):
        ks = start + tl.arange(0, STEP)
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
    matmul_kernel[grid](a, b, c, M, N, K, BLOCK_M=64, BLOCK_N=64, STEP=32)
    return c
"""
    after = before.replace(
        "    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc, mask=c_mask)\n",
        """\
    halves = tl.permute(tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1))
    left, right = tl.split(halves)
    out_rows = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
    out_cols = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N // 2))[None, :]
    out_ptrs = c_ptr + out_rows * N + out_cols
    tl.store(out_ptrs, left, mask=(out_rows < M) & (out_cols < N))
    out_ptrs += BLOCK_N // 2
    out_cols += BLOCK_N // 2
    tl.store(out_ptrs, right, mask=(out_rows < M) & (out_cols < N))
""",
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """One: halves."""
        self.apply(subject, {})
        return [{}]

    def apply(self, subject: Subject, params: Params) -> str:  # noqa: ARG002
        """Split the store of every launched kernel that multiplies tiles in a loop."""
        if subject.hardware.interpreted:
            raise NotApplicable("Triton's interpreter has no shared memory")
        source = subject.source
        edits: dict[cst.CSTNode, Edit] = {}
        reasons: list[str] = []
        for kernel in TRITON.launched(source):
            try:
                edits |= _halved(source, kernel)
            except NotApplicable as reason:
                reasons.append(str(reason))
        if not edits:
            raise NotApplicable("; ".join(reasons[:2]) or "no Triton kernel is launched here")
        return source.rewrite(edits)


def _halved(source: Source, kernel: Kernel) -> dict[cst.CSTNode, Edit]:
    body = kernel.function.node.body
    dots = TRITON.find(source, body, TRITON.dots)
    if not any(isinstance(a, cst.For) for dot in dots for a in source.ancestors(dot)):
        raise NotApplicable(f"{kernel.name} does not multiply tiles in a loop")
    if any(True for _ in TRITON.find(source, body, (SPLIT,))):
        raise NotApplicable(f"{kernel.name} splits a tile already")
    for attribute in descendants(body, cst.Attribute):
        if attribute.attr.value in WIDE:
            raise NotApplicable(f"line {source.line(attribute)} computes with 64 bits")
    stores = list(TRITON.find(source, body, (STORE,)))
    if len(stores) != 1:
        raise NotApplicable(f"{kernel.name} has {len(stores)} stores, not one")
    (call,) = stores
    access = tile_access(source, kernel, call)
    line = next(source.ancestors(call))
    statement = next(source.ancestors(line)) if isinstance(line, cst.Expr) else None
    value = argument(call, 1, "value")
    own = statement in getattr(body, "body", ())
    if not isinstance(statement, cst.SimpleStatementLine) or value is None or not own:
        raise NotApplicable(f"the store at line {source.line(call)} is no statement of its own")
    lines = _lines(source, kernel, access, value, language(source, kernel))
    return {statement: lambda updated: preceded(updated, lines, keep=False)}


def _lines(
    source: Source, kernel: Kernel, access: TileAccess, value: cst.BaseExpression, tl: str
) -> list[str]:
    rows, columns = access.dimensions
    if rows.length == rows.extent or columns.length == columns.extent:
        raise NotApplicable(f"the store of {kernel.name} is not masked along both dimensions")
    halves, left, right, own_rows, own_cols, ptrs = (
        unused(kernel, name)
        for name in ("halves", "left", "right", "out_rows", "out_cols", "out_ptrs")
    )
    half = f"{columns.extent} // 2"
    base = " + ".join([access.base, *(source.code(offset) for offset in access.offsets)])
    row_step = "" if rows.stride == "1" else f" * {rows.stride}"
    column_step = "" if columns.stride == "1" else f" * {columns.stride}"
    parts = f"({rows.extent}, 2, {half})"
    mask = f"({own_rows} < {rows.length}) & ({own_cols} < {columns.length})"
    step = half if columns.stride == "1" else f"{half} * {columns.stride}"
    return [
        f"{halves} = {tl}.permute({tl}.reshape({source.code(value)}, {parts}), (0, 2, 1))",
        f"{left}, {right} = {tl}.split({halves})",
        f"{own_rows} = ({_from(rows.start)}{tl}.arange(0, {rows.extent}))[:, None]",
        f"{own_cols} = ({_from(columns.start)}{tl}.arange(0, {half}))[None, :]",
        f"{ptrs} = {base} + {own_rows}{row_step} + {own_cols}{column_step}",
        f"{tl}.store({ptrs}, {left}, mask={mask})",
        f"{ptrs} += {step}",
        f"{own_cols} += {half}",
        f"{tl}.store({ptrs}, {right}, mask={mask})",
    ]


def _from(start: str) -> str:
    return "" if start == "0" else f"{start} + "
