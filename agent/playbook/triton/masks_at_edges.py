"""Mask only the tiles that their mask removes something of.

When: a Triton kernel that masks a product in every step of a loop, `qk = tl.where(rows >= columns,
    qk, float("-inf"))`, of which most tiles are whole: those left of the diagonal of a causal
    attention, and all but the last of a row.
Do: put the mask, and what only it reads, under a comparison of the tile's last element number with
    the least that it is compared with: `if start_n + BLOCK_N > start_m * BLOCK_M + 1:`.
Risk: none to results: where the condition does not hold the mask is true for each element. Of a
    mask that is added, `qk += tl.where(mask, 0, ...)`, a zero may keep its minus sign.
Source: Triton's attention tutorial has a loop of its own for the whole tiles. By hand on an NVIDIA
    H200 with Triton 3.6, attentions of TritonBench in fp16: `triton_attention` on 4 x 16 x 4096 x
    128, tiles of 128 x 128, goes from 0.911 to 0.735 ms, in tiles of 128 x 64 from 0.852 to 0.806,
    with a head of 64 from 0.601 to 0.539; `context_attn_llama`, four sequences of 4096, from 1.338
    to 1.235 ms.
"""

from __future__ import annotations

from typing import ClassVar

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Params, Subject
from agent.analysis.triton.edge_masks import edge_masks
from agent.analysis.triton.spans import holds_at
from agent.playbook.base import OfEachKernel
from agent.playbook.trial import P, TritonTrial
from agent.rewriting.common.edge_masks import under_conditions
from agent.syntax import Edits


class MasksAtEdges(OfEachKernel):
    """`x = tl.where(n + tl.arange(0, N) < end, x, 0)` -> the same below `if n + N > end:`."""

    name = "masks-at-edges"
    title = "masks at the edges only"
    backend = "triton"
    family = "masks"
    priority: ClassVar = {
        KernelClass.COMPUTE: 25,
        KernelClass.BALANCED: 45,
        KernelClass.MEMORY: 210,
    }
    expected = "5 to 19 % of a causal attention on an H200"
    hypothesis = "Comparing and choosing takes instructions that change nothing in most tiles."
    example: ClassVar[Params] = {}
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def largest_kernel(
    a_ptr, b_ptr, c_ptr, n, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    block = tl.program_id(0)
    rows = block * ROWS + tl.arange(0, ROWS)
    inner = tl.arange(0, WIDTH)
    a = tl.load(a_ptr + rows[:, None] * WIDTH + inner[None, :], mask=rows[:, None] < n, other=0.0)
    largest = tl.full((ROWS,), float("-inf"), tl.float32)
    for start in range(0, n, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        kept = columns[None, :] < n
        b = tl.load(b_ptr + columns[None, :] * WIDTH + inner[:, None], mask=kept, other=0.0)
        scores = tl.dot(a, b)
        scores = tl.where(rows[:, None] >= columns[None, :], scores, float("-inf"))
        largest = tl.maximum(largest, tl.max(scores, 1))
    tl.store(c_ptr + rows, largest, mask=rows < n)


def largest(a, b):
    n, width = a.shape
    c = torch.empty(n, device=a.device, dtype=torch.float32)
    largest_kernel[(triton.cdiv(n, 32),)](a, b, c, n, WIDTH=width, ROWS=32, COLUMNS=16)
    return c
"""
    after = before.replace(
        """\
        scores = tl.where(rows[:, None] >= columns[None, :], scores, float("-inf"))
""",
        """\
        if start + COLUMNS > block * ROWS + 1:
            scores = tl.where(rows[:, None] >= columns[None, :], scores, float("-inf"))
""",
    )

    trial = TritonTrial(
        kernel="largest_kernel",
        types=(P, P, P, "i32", 32, 32, 16),
        function="largest",
        calls=tuple(((n, 32), (n, 32)) for n in (1, 32, 77, 130)),
    )

    def edits(self, subject: Subject, kernel: Kernel, _: Params) -> Edits:
        """Put each mask that does nothing in some of the steps under a condition."""
        return under_conditions(subject.source, edge_masks(subject, kernel), holds_at)
