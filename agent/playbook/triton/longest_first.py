"""Start the programs that take longest first.

When: a Triton kernel whose loop runs the further the higher the number of its program, as that of a
    causal attention does: `range(0, (pid_m + 1) * BLOCK_M, BLOCK_N)`.
Do: count that axis of the grid from its end: `tl.num_programs(0) - 1 - tl.program_id(0)`. Blocks
    are started in the order of their number, so that the last ones to run are then short. Where one
    number is taken apart by `//` and `%`, it is turned round as a whole.
Risk: none to results: the programs are the same ones in another order. Programs that wait for one
    another might hang, so kernels with locks are refused.
Source: Graham's bound for list scheduling: the end is off by the last job at most, and by a third
    of the optimum with the longest first. With 128 rows a block at 2048 positions, the last program
    takes 16 times as long as the first.
"""

from __future__ import annotations

from typing import ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.growing_loops import GrowingLoops
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.host import language
from agent.analysis.triton.program_ids import ProgramIndex, program_indices
from agent.analysis.triton.waiting import check_never_waits
from agent.playbook.base import OfEachKernel
from agent.playbook.trial import P, TritonTrial
from agent.rewriting.triton.edits import Edit, parenthesized, writing
from agent.syntax import Source


class LongestFirst(OfEachKernel):
    """`tl.program_id(0)` -> `tl.num_programs(0) - 1 - tl.program_id(0)`."""

    name = "longest-first"
    title = "longest programs first"
    backend = "triton"
    family = "order"
    priority: ClassVar = {KernelClass.COMPUTE: 26, KernelClass.BALANCED: 36, KernelClass.MEMORY: 38}
    expected = "a few percent of a causal kernel, what its last programs keep the GPU waiting"
    hypothesis = "The GPU runs empty sooner when the programs that end last are short ones."
    idle_in_interpreter = "Triton's interpreter runs one program after the other"
    example: ClassVar[Params] = {}
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def prefix_sum_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    before = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, pid * BLOCK, BLOCK):
        before += tl.load(x_ptr + start + tl.arange(0, BLOCK))
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(y_ptr + offsets, tl.sum(before, axis=0) + tl.cumsum(x, axis=0), mask=offsets < n)


def prefix_sum(x):
    y = torch.empty_like(x)
    n = x.numel()
    prefix_sum_kernel[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)
    return y
"""
    after = before.replace(
        "pid = tl.program_id(0)", "pid = tl.num_programs(0) - 1 - tl.program_id(0)"
    )

    trial = TritonTrial(
        kernel="prefix_sum_kernel",
        types=(P, P, "i32", 256),
        function="prefix_sum",
        calls=(((1,),), ((256,),), ((1000,),)),
    )

    def edits(self, subject: Subject, kernel: Kernel, _: Params) -> dict[cst.CSTNode, Edit]:
        """Turn the axis round that the loops depend on, wherever the kernel asks for it."""
        source = subject.source
        growing = _growing(source, kernel)
        last = f"{language(source, kernel)}.num_programs({growing[0].axis}) - 1"
        turned = {each.call: f"{last} - {source.code(each.call)}" for each in growing}
        return {call: writing(parenthesized(source, call, text)) for call, text in turned.items()}


def _growing(source: Source, kernel: Kernel) -> list[ProgramIndex]:
    """Where the program id is asked for that decides how far a loop runs."""
    check_never_waits(source, kernel)
    indices = program_indices(source, kernel)
    for axis in dict.fromkeys(index.axis for index in indices):
        same = [index for index in indices if index.axis == axis]
        if GrowingLoops(TRITON, source, kernel, [each.call for each in same]).run_further():
            return same
    asked = [index.call for index in indices]
    raise NotApplicable(GrowingLoops(TRITON, source, kernel, asked).otherwise())
