"""Split the sum of a matrix product over several programs.

When: a Triton kernel that sums a long `K` in a loop while the result has fewer tiles than the GPU
    has multiprocessors: decoding with small batches, gradients of weights. Needs judgement: who
    initialises the result with zero, and whether sums in any order are allowed.
Do: a third axis of the grid, `SPLIT_K`; each program sums every SPLIT_K-th block of K. Either add
    to a zeroed fp32 result with `tl.atomic_add`, or write partial results and sum them in a second
    kernel, which is deterministic and lets the epilogue stay where it is.
Risk: the order of the sum, and with atomics the result, changes from run to run. An autotuner needs
    `reset_to_zero`. On the Tile IR backend, whose memory model is unordered, locks are unsafe.
Source: Triton's kernel library, FlagGems and FlagAttention split K for skinny products; the gain is
    about the number of idle multiprocessors, claimed and not measured here.
"""

from __future__ import annotations

from typing import ClassVar

import libcst as cst

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Subject
from agent.analysis.triton.dialect import ATOMICS, TRITON
from agent.playbook.base import Advice


class SplitK(Advice):
    """Prose for a model or a person."""

    name = "split-k"
    title = "split K"
    backend = "triton"
    family = "scheduling"
    priority: ClassVar = {KernelClass.COMPUTE: 70, KernelClass.BALANCED: 60}
    expected = "large for products with fewer tiles than multiprocessors, a loss for others"
    hypothesis = "Programs that would be idle sum a part of K."

    def fits(self, subject: Subject) -> str:
        """A product in a loop whose kernel adds nothing atomically yet."""
        source = subject.source
        for kernel in TRITON.chosen(source):
            body = kernel.function.node.body
            if TRITON.has(source, body, ATOMICS):
                continue
            for dot in TRITON.find(source, body, TRITON.dots):
                loop = next((a for a in source.ancestors(dot) if isinstance(a, cst.For)), None)
                if loop is not None:
                    return (
                        f"{kernel.name} sums products in the loop at line {source.line(loop)}: "
                        "worth it where the grid has fewer programs than the GPU multiprocessors"
                    )
        raise NotApplicable("no launched kernel sums products in a loop without atomics")
