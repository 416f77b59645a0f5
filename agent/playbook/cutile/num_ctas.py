"""Let two thread blocks of a cluster work on one tile of a product.

When: a cuTile kernel that multiplies tiles, on sm_90, sm_100 or sm_103.
Do: set `num_ctas=2` in `@ct.kernel`. On sm_90 double the height or the width of the accumulator
    with it: each of the two blocks then keeps the half that one block had, and what they both need
    is loaded once for both.
Risk: none to results. A product with a thin edge loses: 1.76x slower with N = 16 on a B200.
Source: TileGym's cuTile playbook and its measurements on a B200. Compiled for sm_90 with cuda-tile
    1.7, a 256 x 128 x 64 fp16 product loses its 1040 bytes of spills with two blocks; one of bf16
    fits into 128 registers without any, so that two pairs share two multiprocessors. The losses
    that were measured are those of two blocks on the tile of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile.dialect import CUTILE
from agent.playbook.base import Optimization
from agent.playbook.trial import F16, TILE_PRODUCT, TileTrial
from agent.rewriting.common.tile_sizes import ChangeableTiles
from agent.rewriting.cutile.hints import hint_of, hintable, with_hint

HINT = "num_ctas"
CLUSTERS = (90, 100, 103)


class NumCtas(Optimization):
    """`@ct.kernel` -> `@ct.kernel(num_ctas=2)`."""

    name = "num-ctas"
    title = "two thread blocks a tile"
    backend = "cutile"
    family = "cluster"
    revisit_after = frozenset({"arithmetic", "scheduling", "tiles"})
    priority: ClassVar = {
        KernelClass.COMPUTE: 60,
        KernelClass.BALANCED: 210,
        KernelClass.MEMORY: 310,
    }
    expected = "removes spills of large tiles on sm_90; 2-CTA MMA on sm_100; can lose on thin tiles"
    hypothesis = "Two blocks split the accumulator and share operands, which relieves registers."
    example: ClassVar[Params] = {HINT: 2}
    before = TILE_PRODUCT.replace("@ct.kernel", "@ct.kernel(occupancy=1)")
    after = before.replace("(occupancy=1)", "(occupancy=1, num_ctas=2)")

    trial = TileTrial(kernel="matmul_kernel", arguments=((F16, 2), (F16, 2), (F16, 2)))

    def variants(self, subject: Subject) -> Sequence[Params]:
        """Two, unless that is set: for the tile as it is, twice as high, and twice as wide."""
        kernels = self._kernels(subject)
        if all(hint_of(subject, kernel, HINT) == 2 for kernel in kernels):
            raise NotApplicable(f"{HINT} is 2 already")
        try:
            larger = ChangeableTiles.of(CUTILE, subject.source).doubled()
        except NotApplicable:
            larger = []
        return [{HINT: 2}, *({HINT: 2, **sizes} for sizes in larger)]

    def apply(self, subject: Subject, params: Params) -> str:
        """Set it for every launched kernel that multiplies tiles, and the sizes with it."""
        text = with_hint(subject, self._kernels(subject), HINT, int(params[HINT]))
        sizes = {name: n for name, n in params.items() if name != HINT}
        if not sizes:
            return text
        return ChangeableTiles.of(CUTILE, subject.source.with_text(text)).resize(sizes)

    def _kernels(self, subject: Subject) -> tuple[Kernel, ...]:
        check_pairs(subject)
        source = subject.source
        multiplying = [k for k in CUTILE.chosen(source) if CUTILE.has_dot(source, k)]
        if not multiplying:
            raise NotApplicable("no launched kernel multiplies tiles")
        return hintable(subject, HINT, multiplying)


def check_pairs(subject: Subject) -> None:
    """Refuse a GPU whose thread blocks do not work in pairs. Raises `NotApplicable`."""
    if subject.hardware.sm not in (0, *CLUSTERS):
        raise NotApplicable(f"sm_{subject.hardware.sm} has no pairs of thread blocks")
