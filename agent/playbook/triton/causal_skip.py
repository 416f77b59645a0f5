"""Leave out the blocks that a causal mask removes.

When: a Triton attention that masks keys behind the query, `offs_m >= offs_n`, but steps over all
    keys or masks every block. Needs judgement: where the diagonal lies when queries and keys differ
    in number.
Do: end the loop at the last key that any query of the block sees, `(pid_m + 1) * BLOCK_M`; split it
    into the blocks left of the diagonal, without a mask, and those on it, with one. Start the
    longest programs first: reverse `pid_m`.
Risk: an end off by one block changes results in a few rows only; test lengths that are no multiple
    of either block.
Source: Triton's attention tutorial does it in stages; about half of the blocks of a square causal
    attention are empty, so up to twice as fast.
"""

from __future__ import annotations

from typing import ClassVar

import libcst as cst

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Subject
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.index_ranges import span_of
from agent.playbook.base import Advice
from agent.syntax import descendants


class CausalSkip(Advice):
    """Prose for a model or a person."""

    name = "causal-skip"
    title = "causal skip"
    backend = "triton"
    family = "masks"
    priority: ClassVar = {KernelClass.COMPUTE: 33, KernelClass.BALANCED: 36}
    expected = "up to twice as fast where all blocks are computed; a few percent from the split"
    hypothesis = "Half of the blocks are masked away after they have been computed."

    def fits(self, subject: Subject) -> str:
        """A comparison of two runs of element numbers in a loop with a dot."""
        source = subject.source
        for kernel in TRITON.chosen(source):
            for loop in descendants(kernel.function.node.body, cst.For):
                if not TRITON.has(source, loop.body, TRITON.dots):
                    continue
                for comparison in descendants(loop.body, cst.Comparison):
                    if len(comparison.comparisons) != 1:
                        continue
                    sides = (comparison.left, comparison.comparisons[0].comparator)
                    spans = [span_of(source, side) for side in sides]
                    if None not in spans:
                        return (
                            f"{kernel.name} compares rows with columns in a loop with a dot, at "
                            f"line {source.line(comparison)}"
                        )
        raise NotApplicable("no launched kernel compares rows with columns beside a dot in a loop")
