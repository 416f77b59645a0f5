"""Find the maximum and the sum of a row in one pass instead of two.

When: a Triton kernel that steps through a row once for its maximum and once more for the sum of
    exponentials, because the row is too long to hold. Needs judgement: which of the passes can be
    merged, and what has to be rescaled.
Do: keep a running maximum `m` and sum `s`; for each block `m_new = max(m, max(x))`, then
    `s = s * exp(m - m_new) + sum(exp(x - m_new))`. A tile that is accumulated beside them, as in an
    attention, is rescaled by the same factor.
Risk: numerics: `m` starts at minus infinity, and a block that is masked entirely must not give
    `exp(-inf - -inf)`, which is not a number. Sums are rounded in another order.
Source: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018): one read of the
    row less of three; FlashAttention.
"""

from __future__ import annotations

from typing import ClassVar

import libcst as cst

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Subject
from agent.analysis.triton.dialect import TRITON
from agent.playbook.base import Advice
from agent.syntax import descendants

EXP = tuple(f"triton.language.{name}" for name in ("exp", "exp2", "math.exp", "math.exp2"))
LARGEST = ("triton.language.max", "triton.language.maximum")


class OnlineSoftmax(Advice):
    """Prose for a model or a person."""

    name = "online-softmax"
    title = "online softmax"
    backend = "triton"
    family = "passes"
    priority: ClassVar = {KernelClass.MEMORY: 27, KernelClass.BALANCED: 31}
    expected = "a third of the traffic of a softmax in three passes"
    hypothesis = "The row is read once less."

    def fits(self, subject: Subject) -> str:
        """A loop that finds a maximum, and a later loop with exponentials but no maximum."""
        source = subject.source
        for kernel in TRITON.chosen(source):
            loops = list(descendants(kernel.function.node.body, cst.For))
            first = None
            for loop in loops:
                has_max = TRITON.has(source, loop.body, LARGEST)
                has_exp = TRITON.has(source, loop.body, EXP)
                if has_max and not has_exp:
                    first = loop
                elif has_exp and not has_max and first is not None:
                    return (
                        f"{kernel.name} finds a maximum in the loop at line {source.line(first)} "
                        f"and takes exponentials in the one at line {source.line(loop)}"
                    )
        raise NotApplicable("no kernel finds a maximum in one loop, and exponentials in the next")
