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

import libcst as cst

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Subject
from agent.analysis.triton.dialect import TRITON
from agent.playbook.base import Advice
from agent.syntax import Source


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
                if _are_alternatives(source, one.node, other.node):
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


def _are_alternatives(source: Source, one: cst.CSTNode, other: cst.CSTNode) -> bool:
    """Whether one of two launches stands in for the other: in the branches of an `if`, or where
    the first has failed."""
    around = [*source.ancestors(one)], [*source.ancestors(other)]
    for both in (node for node in around[0] if node in around[1]):
        parts: list[cst.CSTNode] = []
        match both:
            case cst.If(body=body, orelse=cst.CSTNode() as otherwise):
                parts = [body, otherwise]
            case cst.Try(body=body, handlers=handlers):
                parts = [body, *handlers]
        places = [next((n for n, p in enumerate(parts) if p in nodes), None) for nodes in around]
        if None not in places and places[0] != places[1]:
            return True
    return False
