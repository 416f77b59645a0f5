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

from functools import partial
from typing import ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.host import language
from agent.analysis.triton.tile_axes import is_broadcast
from agent.analysis.triton.tiles import STORE, TileAccess, tile_access
from agent.playbook.base import OfEachKernel
from agent.playbook.trial import PRODUCTS, P, TritonTrial
from agent.rewriting.common.insertion import unused
from agent.rewriting.common.preceding import preceded
from agent.rewriting.triton.described import origin
from agent.rewriting.triton.edits import Edit
from agent.syntax import Source, argument, descendants

SPLIT = "triton.language.split"
WIDE = ("int64", "uint64")


class EpilogueHalves(OfEachKernel):
    """`tl.store(c_ptrs, c)` -> a store of each half of `c`."""

    name = "epilogue-halves"
    title = "epilogue in halves"
    backend = "triton"
    family = "epilogue"
    priority: ClassVar = {KernelClass.COMPUTE: 52, KernelClass.BALANCED: 60}
    expected = "a few percent of a product with large tiles, or nothing"
    hypothesis = "A half of the result needs half of the room on its way out."
    idle_in_interpreter = "Triton's interpreter has no shared memory"
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
        """\
    c_mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc, mask=c_mask)
""",
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

    trial = TritonTrial(
        kernel="matmul_kernel",
        types=(P, P, P, "i32", "i32", "i32", 64, 64, 32),
        function="matmul",
        calls=PRODUCTS,
    )

    def edits(self, subject: Subject, kernel: Kernel, _: Params) -> dict[cst.CSTNode, Edit]:
        """Split the store of a product that is summed up in a loop."""
        return _halved(subject.source, kernel)


def _halved(source: Source, kernel: Kernel) -> dict[cst.CSTNode, Edit]:
    body = kernel.function.node.body
    if not TRITON.sums_products(source, kernel):
        raise NotApplicable(f"{kernel.name} does not multiply tiles in a loop")
    if TRITON.has(source, body, (SPLIT,)):
        raise NotApplicable(f"{kernel.name} splits a tile already")
    for attribute in descendants(body, cst.Attribute):
        if attribute.attr.value in WIDE:
            raise NotApplicable(f"line {source.line(attribute)} computes with 64 bits")
    stores = list(TRITON.find(source, body, (STORE,)))
    if len(stores) != 1:
        raise NotApplicable(
            f"looks for the one tl.store, and {kernel.name} has {len(stores) or 'none'}"
        )
    (call,) = stores
    access = tile_access(source, kernel, call)
    line = next(source.ancestors(call))
    statement = next(source.ancestors(line)) if isinstance(line, cst.Expr) else None
    value = argument(call, 1, "value")
    own = statement in getattr(body, "body", ())
    if not isinstance(statement, cst.SimpleStatementLine) or value is None or not own:
        raise NotApplicable(f"the store at line {source.line(call)} is no statement of its own")
    if is_broadcast(source, kernel, value):
        raise NotApplicable(f"line {source.line(call)} stores no whole tile, but broadcasts one")
    lines = _lines(source, kernel, access, value, language(source, kernel))
    return {statement: partial(preceded, written=lines, keep=False)}


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
    row_step, column_step = ("".join(f" * {f}" for f in d.stride) for d in access.dimensions)
    parts = f"({rows.extent}, 2, {half})"
    mask = f"({own_rows} < {rows.length}) & ({own_cols} < {columns.length})"
    return [
        f"{halves} = {tl}.permute({tl}.reshape({source.code(value)}, {parts}), (0, 2, 1))",
        f"{left}, {right} = {tl}.split({halves})",
        f"{own_rows} = ({_from(rows.start)}{tl}.arange(0, {rows.extent}))[:, None]",
        f"{own_cols} = ({_from(columns.start)}{tl}.arange(0, {half}))[None, :]",
        f"{ptrs} = {origin(source, access)} + {own_rows}{row_step} + {own_cols}{column_step}",
        f"{tl}.store({ptrs}, {left}, mask={mask})",
        f"{ptrs} += {half}{column_step}",
        f"{own_cols} += {half}",
        f"{tl}.store({ptrs}, {right}, mask={mask})",
    ]


def _from(start: str) -> str:
    return "" if start == "0" else f"{start} + "
