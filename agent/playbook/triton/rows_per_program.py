"""Let one program work on several short rows.

When: a Triton kernel with one program a row, whose rows are short: below about 512 elements a warp
    has too little to do, and programs come and go. Needs judgement: every tile gets a second
    dimension, every reduction an axis, and the number of rows a tail.
Do: `rows = pid * ROWS + tl.arange(0, ROWS)[:, None]`, `cols = tl.arange(0, BLOCK)[None, :]`, masks
    for both, `axis=1` in the reductions, `[:, None]` on what they give; a grid of
    `triton.cdiv(n_rows, ROWS)`. Tune ROWS over 1, 2, 4, 8, 16.
Risk: a mask too few reads past the last row. Long rows spill.
Source: attorch chooses rows by the length of a row; Helion allows up to 8 rows a program while at
    least 8 waves of programs are left.
"""

from __future__ import annotations

from typing import ClassVar

from agent.backends.base import KernelClass
from agent.backends.triton import TRITON
from agent.playbook.base import Advice, NotApplicable, Subject
from agent.playbook.triton_programs import program_indices
from agent.syntax import argument


class RowsPerProgram(Advice):
    """Prose for a model or a person."""

    name = "rows-per-program"
    title = "rows per program"
    backend = "triton"
    family = "tiles"
    priority: ClassVar = {KernelClass.MEMORY: 29, KernelClass.BALANCED: 33}
    expected = "large for rows below about 512 elements, nothing for long ones"
    hypothesis = "A program with several rows has enough loads in flight to hide their latency."

    def fits(self, subject: Subject) -> str:
        """A kernel with one program id, tiles of one dimension and a reduction of them."""
        source = subject.source
        for kernel in TRITON.launched(source):
            body = kernel.function.node.body
            reductions = list(TRITON.find(source, body, TRITON.reductions))
            flat = all(
                (axis := argument(call, 1, "axis")) is None or source.code(axis) == "0"
                for call in reductions
            )
            try:
                axes = {index.axis for index in program_indices(source, kernel)}
            except NotApplicable:
                continue
            if reductions and flat and axes == {0} and not TRITON.has_dot(source, kernel):
                line = source.line(reductions[0])
                return (
                    f"{kernel.name} reduces one row a program, at line {line}: worth it for rows "
                    "below about 512 elements"
                )
        raise NotApplicable("no launched kernel reduces one row a program")
