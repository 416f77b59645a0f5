"""Tell the compiler how many blocks shall share a multiprocessor.

When: a cuTile kernel that waits for memory, or one whose occupancy was never chosen. Without the
    hint the compiler may spend all 255 registers of a thread on one block.
Do: set `occupancy=` in `@ct.kernel`, from 1 to 32: sweep 2 to 16 where memory is the limit, 1 to 8
    between, 1 to 4 where arithmetic is.
Risk: none to results. Fewer registers for each thread can spill, and a hint that cannot be met is
    ignored without a word: only the timing tells.
Source: TileGym's cuTile playbook, item C. Measured on an NVIDIA H200 with cuda-tile 1.7: a bf16
    softmax of 16384 x 4096, one row a block, takes 0.3795 ms with occupancy 1, 0.2161 with 2,
    0.1351 with 4, 0.1316 with 8 and 0.1323 with 16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Params, Subject
from agent.analysis.cutile.dialect import CUTILE
from agent.playbook.base import Optimization
from agent.playbook.trial import F32, TILE_ROWS, TileTrial
from agent.rewriting.cutile.hints import hint_of, hintable, with_hint

HINT = "occupancy"
SWEEP: Mapping[KernelClass, tuple[int, ...]] = {
    KernelClass.MEMORY: (2, 4, 8, 16),
    KernelClass.BALANCED: (1, 2, 4, 8),
    KernelClass.COMPUTE: (1, 2, 4),
}
DEFAULT = 1
"""What no hint means: both give the same code."""


class OccupancyHint(Optimization):
    """`@ct.kernel` -> `@ct.kernel(occupancy=N)`."""

    name = "occupancy-hint"
    title = "occupancy hint"
    backend = "cutile"
    family = "occupancy"
    revisit_after = frozenset({"cluster", "rows", "tiles"})
    priority: ClassVar = {
        KernelClass.MEMORY: -10,
        KernelClass.BALANCED: 20,
        KernelClass.COMPUTE: 30,
    }
    expected = "softmax 16384 x 4096 in bf16 on an H200: 2.9x; matmul 4096^3: 1.1x"
    hypothesis = "More resident blocks have more loads in flight, which hides memory latency."
    example: ClassVar[Params] = {HINT: 4}
    before = TILE_ROWS
    after = before.replace("@ct.kernel\n", "@ct.kernel(occupancy=4)\n")

    trial = TileTrial(kernel="softmax_kernel", arguments=((F32, 2), (F32, 2), 1024))

    def variants(self, subject: Subject) -> Sequence[Params]:
        """The sweep, less what every kernel has already."""
        kernels = hintable(subject, HINT, CUTILE.chosen(subject.source))
        present = {hint_of(subject, kernel, HINT) or DEFAULT for kernel in kernels}
        sweep = SWEEP[subject.kernel_class]
        return [{HINT: value} for value in sweep if present != {value}]

    def apply(self, subject: Subject, params: Params) -> str:
        """Set it for every launched kernel."""
        kernels = hintable(subject, HINT, CUTILE.chosen(subject.source))
        return with_hint(subject, kernels, HINT, int(params[HINT]))
