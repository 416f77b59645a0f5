"""Let two thread blocks of a cluster hold a long row, and keep what they compute in registers.

When: a cuTile kernel that memory bounds and that multiplies no tiles, on rows of over 8192
    elements, on sm_90, sm_100 or sm_103.
Do: a tile that holds a whole row, `num_ctas=2`, eight warps in each of the blocks, an occupancy of
    4 or 8; and where exact divisions or exponentials would take registers, approximate ones. Alone
    none of these gains.
Risk: changes rounding where arithmetic becomes approximate, as `fast-math` does.
Source: TileGym launches its SwiGLU so for rows of over 8 KiB. Measured by hand on an NVIDIA H200
    with cuda-tile 1.7: 8192 x 14336 in bf16 takes 0.1662 ms with an occupancy of 4, 0.1684 with 8
    and 0.2050 without; 0.5322, 0.7927 and 0.2106 ms with exact arithmetic, which spills. Tiles of
    2048 columns, the best of one block each, take 0.1719 ms, and exact ones 0.1722.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.provenance import tile_names
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile.dialect import CUTILE
from agent.launches import power_of_two, values_of
from agent.playbook.base import REORDERED, Optimization
from agent.playbook.cutile.fast_math import FastMath
from agent.playbook.cutile.num_ctas import HINT as CTAS
from agent.playbook.cutile.num_ctas import check_pairs
from agent.playbook.cutile.occupancy_hint import HINT as OCCUPANCY
from agent.playbook.cutile.worker_warps import HINT as WARPS
from agent.playbook.trial import F32, TileTrial
from agent.rewriting.common.tile_sizes import MOST_ELEMENTS, ChangeableTiles
from agent.rewriting.cutile.hints import hint_of, hintable, with_hint

LONG_ROW = 16384
"""Elements of a tile: two blocks of eight warps then have 32 a thread."""
LONGEST_ROW = MOST_ELEMENTS // 2
ROUNDING, APPROXIMATE = "rounding", "APPROX"
HINTS: tuple[Mapping[str, Any], ...] = (
    {CTAS: 2, WARPS: 8, OCCUPANCY: 4},
    {CTAS: 2, WARPS: 8, OCCUPANCY: 8},
)


class TwoBlocksARow(Optimization):
    """`@ct.kernel` -> `@ct.kernel(num_ctas=2, num_worker_warps=8, occupancy=4)`, a row a tile."""

    name = "two-blocks-a-row"
    title = "two thread blocks a row"
    backend = "cutile"
    family = "cluster"
    revisit_after = frozenset({"arithmetic", "tiles"})
    priority: ClassVar = {KernelClass.MEMORY: 320}
    expected = "3 % of a SwiGLU on an H200, by hand"
    hypothesis = "A row comes in one go when the threads of two blocks have registers for it."
    changes_rounding = REORDERED
    example: ClassVar[Params] = {**HINTS[0], ROUNDING: APPROXIMATE, "BLOCK": LONG_ROW}
    before = """\
import cuda.tile as ct
import torch

BLOCK = 1024


@ct.kernel
def ratio_kernel(x, y, BLOCK: ct.Constant[int]):
    row, columns = ct.bid(0), ct.bid(1) * BLOCK + ct.arange(BLOCK, dtype=ct.int32)
    tile = ct.gather(x, (row, columns)).astype(ct.float32)
    ratio = tile / (tile * tile + 1.0)
    ct.scatter(y, (row, columns), ratio.astype(y.dtype))


def ratio(x):
    y = torch.empty_like(x)
    grid = (x.shape[0], ct.cdiv(x.shape[1], BLOCK))
    ct.launch(torch.cuda.current_stream(), grid, ratio_kernel, (x, y, BLOCK))
    return y
"""
    after = (
        before.replace("BLOCK = 1024", "BLOCK = 16384")
        .replace("@ct.kernel\n", "@ct.kernel(num_ctas=2, num_worker_warps=8, occupancy=4)\n")
        .replace(
            "    ratio = tile / (tile * tile + 1.0)\n",
            """\
    ratio = ct.truediv(
        tile,
        tile * tile + 1.0,
        rounding_mode=ct.RoundingMode.APPROX,
        flush_to_zero=True,
    )
""",
        )
    )

    trial = TileTrial(
        kernel="ratio_kernel",
        arguments=((F32, 2), (F32, 2), 1024),
        arguments_after=((F32, 2), (F32, 2), 16384),
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """Both occupancies, for each size that holds a row."""
        kernels = self._kernels(subject)
        if all(hint_of(subject, kernel, CTAS) == 2 for kernel in kernels):
            raise NotApplicable(f"{CTAS} is 2 already")
        rounding: Params = {}
        with suppress(NotApplicable):
            FastMath().apply(subject, {ROUNDING: APPROXIMATE})
            rounding = {ROUNDING: APPROXIMATE}
        sizes = _whole_rows(subject, kernels)
        return [{**hints, **rounding, **each} for each in sizes for hints in HINTS]

    def apply(self, subject: Subject, params: Params) -> str:
        """Set the hints of every launched kernel, with the arithmetic and the size."""
        self._kernels(subject)
        text = subject.source.text
        if ROUNDING in params:
            text = FastMath().apply(subject, {ROUNDING: params[ROUNDING]})
        for hint in (CTAS, WARPS, OCCUPANCY):
            changed = replace(subject, source=subject.source.with_text(text))
            kernels = hintable(changed, hint, CUTILE.chosen(changed.source))
            with suppress(NotApplicable):  # it is set to that already
                text = with_hint(changed, kernels, hint, int(params[hint]))
        known = (CTAS, WARPS, OCCUPANCY, ROUNDING)
        sizes = {name: n for name, n in params.items() if name not in known}
        if not sizes:
            return text
        return ChangeableTiles.of(CUTILE, subject.source.with_text(text)).resize(sizes)

    def _kernels(self, subject: Subject) -> tuple[Kernel, ...]:
        check_pairs(subject)
        if subject.kernel_class is not KernelClass.MEMORY:
            raise NotApplicable("memory does not bound it")
        chosen = CUTILE.chosen(subject.source)
        for kernel in chosen:
            if CUTILE.has_dot(subject.source, kernel):
                raise NotApplicable(f"{kernel.name} multiplies tiles")
        return hintable(subject, CTAS, chosen)


def _whole_rows(subject: Subject, kernels: Sequence[Kernel]) -> list[dict[str, int]]:
    """Sizes of tiles that hold a long row: as they are, or those of one constant.

    Raises:
        NotApplicable: no row is that long, or no tile may be.
    """
    source, launches = subject.source, subject.launches
    rows = {t.shape[-1] for each in launches for t in each.tensors.values() if t.shape}
    wide = {size for n in rows if LONG_ROW <= (size := power_of_two(n)) <= LONGEST_ROW}
    if rows and not wide:
        raise NotApplicable(f"no row has {LONG_ROW // 2} to {LONGEST_ROW} elements")
    tiles = {
        size
        for kernel in kernels
        for constant in tile_names(CUTILE, source, kernel)
        for size in values_of(launches, kernel.name, constant)
    }
    found: list[dict[str, int]] = [{}] if not tiles or max(tiles) >= LONG_ROW else []
    with suppress(NotApplicable):
        changeable = ChangeableTiles.of(CUTILE, source)
        found += [sizes for size in sorted(wide or {LONG_ROW}) for sizes in changeable.grown(size)]
    if not found:
        raise NotApplicable(f"no tile holds a row of over {LONG_ROW // 2} elements, or may")
    return found
