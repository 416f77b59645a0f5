"""Unroll loops that load and compute without a dot.

When: a Triton kernel whose innermost loop loads and computes, without `tl.dot`. Not where
    it ran once at most in all launches seen.
Do: `for i in range(...)` -> `for i in tl.range(..., loop_unroll_factor=U)`; sweep 2 and 4.
Risk: none to results; the values of U rounds occupy registers at once.
Source: compiled with Triton 3.6, U times as many loads are in flight. TileGym found the opposite
    for a kernel that spills: a factor of 1 was 2 to 5 times faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.playbook.base import Optimization
from agent.playbook.trial import P, TritonTrial
from agent.rewriting.triton.loops import check_rounds, ranging, streaming_loops
from agent.syntax import keyword

FACTORS = (2, 4)
OPTION = "loop_unroll_factor"


class UnrolledLoops(Optimization):
    """`range(...)` -> `tl.range(..., loop_unroll_factor=U)`."""

    name = "unrolled-loops"
    title = "unrolled loops"
    backend = "triton"
    family = "pipelining"
    priority: ClassVar = {KernelClass.MEMORY: 34, KernelClass.BALANCED: 34, KernelClass.COMPUTE: 58}
    expected = "more loads in flight; the gain is to be measured"
    hypothesis = "The loads of several rounds are issued together and wait together."
    opt_in = "it gained 0.5 % at most on four kernels, and lost up to 1.5 %"
    example: ClassVar[Params] = {"factor": 2}
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def row_max_kernel(x_ptr, y_ptr, stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    largest = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + cols, mask=cols < n_cols, other=float("-inf"))
        largest = tl.maximum(largest, x)
    tl.store(y_ptr + row, tl.max(largest, axis=0))


def row_max(x):
    y = torch.empty(x.shape[0], device=x.device, dtype=torch.float32)
    row_max_kernel[(x.shape[0],)](x, y, x.stride(0), x.shape[1], BLOCK=512)
    return y
"""
    after = before.replace(
        "in range(0, n_cols, BLOCK):", "in tl.range(0, n_cols, BLOCK, loop_unroll_factor=2):"
    )

    trial = TritonTrial(
        kernel="row_max_kernel", types=(P, P, "i32", "i32", 512), function="row_max"
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """The factors, less what every loop says already."""
        check_rounds(subject)
        source = subject.source
        loops = [loop for loop, _ in streaming_loops(subject)]
        present = {source.code(g) if (g := keyword(x, OPTION)) is not None else "" for x in loops}
        return [{"factor": factor} for factor in FACTORS if present != {str(factor)}]

    def apply(self, subject: Subject, params: Params) -> str:
        """Set it for every loop that qualifies, in all launched kernels."""
        source, factor = subject.source, str(params["factor"])
        edits = {
            loop: ranging(language, OPTION, factor)
            for loop, language in streaming_loops(subject)
            if (given := keyword(loop, OPTION)) is None or source.code(given) != factor
        }
        if not edits:
            raise NotApplicable(f"every loop says {OPTION}={factor} already")
        return source.rewrite(edits)
