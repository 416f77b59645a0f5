"""Pipeline the loads of a loop that has no dot.

When: a Triton kernel whose innermost loop loads and computes, without `tl.dot`. The `num_stages` of
    a launch does nothing for such a loop.
Do: `for i in range(...)` -> `for i in tl.range(..., num_stages=N)`; sweep 2, 3, 4, and two more
    where 4 or 6 are there already, or were kept.
Risk: none to results. Each stage holds one more tile in shared memory.
Source: the docstring of `tl.range`. Compiled with Triton 3.6, such a loop issues 4, 6 and 8
    `cp.async` with 2, 3 and 4 stages, and none without.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import libcst as cst

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.playbook.base import Optimization
from agent.playbook.trial import P, TritonTrial
from agent.rewriting.triton.loops import check_rounds, ranging, streaming_loops
from agent.syntax import Source, keyword

LADDER = (2, 3, 4, 6, 8)
FIRST, FURTHER = 3, 2
"""So many of it where no loop says any; beyond those that one says, so many more. On an H100 four
were best of the first three for the backward passes of two public layer norms."""


class LoopStages(Optimization):
    """`range(...)` -> `tl.range(..., num_stages=N)`."""

    name = "loop-stages"
    title = "loop stages"
    backend = "triton"
    family = "pipelining"
    priority: ClassVar = {KernelClass.MEMORY: 18, KernelClass.BALANCED: 22, KernelClass.COMPUTE: 50}
    expected = "asynchronous copies appear; the gain is to be measured"
    hypothesis = "The loads of later iterations overlap with the computation of this one."
    climbs = True
    example: ClassVar[Params] = {"num_stages": 3}
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(x_ptr, y_ptr, stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):  # streams the row
        cols = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * stride + cols, mask=cols < n_cols, other=0.0)
    tl.store(y_ptr + row, tl.sum(total, axis=0))


def row_sum(x):
    y = torch.empty(x.shape[0], device=x.device, dtype=torch.float32)
    row_sum_kernel[(x.shape[0],)](x, y, x.stride(0), x.shape[1], BLOCK=1024)
    return y
"""
    after = before.replace(
        "in range(0, n_cols, BLOCK):", "in tl.range(0, n_cols, BLOCK, num_stages=3):"
    )

    trial = TritonTrial(
        kernel="row_sum_kernel", types=(P, P, "i32", "i32", 1024), function="row_sum"
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """The sweep, as far as what loops say already asks for, less what all of them say."""
        check_rounds(subject)
        source = subject.source
        present = {_stages(source, loop) for loop, _ in streaming_loops(subject)}
        said = [int(stages) for stages in present if stages is not None and stages.isdecimal()]
        below = sum(n <= max(said, default=0) for n in LADDER)
        sweep = LADDER[: below + FURTHER if below >= FIRST else FIRST]
        return [{"num_stages": n} for n in sweep if present != {str(n)}]

    def apply(self, subject: Subject, params: Params) -> str:
        """Set it for every loop that qualifies, in all launched kernels."""
        stages = str(params["num_stages"])
        edits = {
            loop: ranging(language, "num_stages", stages)
            for loop, language in streaming_loops(subject)
            if _stages(subject.source, loop) != stages
        }
        if not edits:
            raise NotApplicable(f"every loop says num_stages={stages} already")
        return subject.source.rewrite(edits)


def _stages(source: Source, loop: cst.Call) -> str | None:
    given = keyword(loop, "num_stages")
    return source.code(given) if given is not None else None
