"""Compute in one kernel what several compute one after the other.

When: host code that launches one Triton kernel and hands its result to another, or to a point-wise
    operation of torch, that needs nothing of the other programs' results. Needs judgement: which
    results other callers use, and whether a reduction stands between.
Do: load what the first kernel loads, compute both, store the last result. A point-wise operation
    goes into the epilogue of the producer; a normalization, into the kernel that holds the row.
Risk: registers: the fused kernel holds the inputs of both. The interface of the host function
    changes if the intermediate result was part of it.
Source: each intermediate tensor costs a write and a read of global memory and a launch of several
    microseconds; Liger-Kernel's fused linear cross entropy and GLU kernels are examples.
"""

from __future__ import annotations

from typing import ClassVar

from agent.analysis.common.alternatives import are_alternatives
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Subject
from agent.analysis.triton.dialect import TRITON
from agent.playbook.base import Advice


class FusedKernels(Advice):
    """Prose for a model or a person."""

    name = "fused-kernels"
    title = "fusion"
    backend = "triton"
    family = "fusion"
    priority: ClassVar = {KernelClass.MEMORY: 26, KernelClass.BALANCED: 30, KernelClass.COMPUTE: 66}
    expected = "one round trip through global memory less for each intermediate result"
    hypothesis = "A result that is used at once need not go to memory and back."

    def fits(self, subject: Subject) -> str:
        """A function that launches several kernels of which one takes what another was given."""
        source = subject.source
        launches = [x for kernel in TRITON.kernels(source) for x in kernel.launches]
        for one in launches:
            for other in launches:
                if one.function is None or one.function is not other.function or one is other:
                    continue
                if source.line(one.node) >= source.line(other.node):
                    continue
                if are_alternatives(source, one.node, other.node):
                    continue
                given = {source.code(v) for v in one.arguments.values()}
                shared = [
                    c for v in other.arguments.values() if (c := source.code(v)) in given
                    and c.isidentifier()
                ]  # fmt: skip
                if shared:
                    return (
                        f"{one.function.name} launches {one.kernel.name} and {other.kernel.name}, "
                        f"both with `{shared[0]}`"
                    )
        raise NotApplicable("no function launches two kernels that share a tensor")
