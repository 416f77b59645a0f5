"""Change the sizes of the tiles that a block works on.

When: a cuTile kernel whose tile sizes are compile-time constants, set to integers in the file.
Do: for a matrix product try combinations of M, N and K; else half, double and four times the size.
Risk: sums in another order; else none to results while the constant is a tile size only, which is
    checked; a large tile spills registers and is then far slower.
Source: TileGym's cuTile playbook, item G. Measured on an NVIDIA H200 with cuda-tile 1.7: a bf16
    product of 4096^3 takes 0.3755 ms with 64 x 64 x 64, 0.2214 with 128 x 128 x 64, and 3.03 with
    128 x 256 x 64, which spills.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from agent.analysis.common.following import following
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Params, Subject
from agent.analysis.cutile.dialect import CUTILE
from agent.playbook.base import REORDERED, Optimization
from agent.playbook.trial import F16, TileTrial
from agent.rewriting.common.tile_sizes import ChangeableTiles


class TileSizes(Optimization):
    """Other integers where the tile sizes are set."""

    name = "tile-sizes"
    title = "tile sizes"
    backend = "cutile"
    family = "tiles"
    climbs = True
    revisit_after = frozenset({"bounds", "slices"})
    priority: ClassVar = {KernelClass.MEMORY: 70, KernelClass.BALANCED: 10, KernelClass.COMPUTE: 10}
    expected = "matmul 4096^3 in bf16 on an H200, from 64 x 64 x 64 to 128 x 128 x 64: 1.7x"
    hypothesis = "A larger tile reuses what it loads more often; a smaller one leaves more blocks."
    changes_rounding = REORDERED
    example: ClassVar[Params] = {"TILE_M": 128, "TILE_N": 128, "TILE_K": 64}
    before = """\
import cuda.tile as ct
import torch

ConstInt = ct.Constant[int]


@ct.kernel
def matmul_kernel(a, b, c, TILE_M: ConstInt, TILE_N: ConstInt, TILE_K: ConstInt):
    row, column = ct.bid(0), ct.bid(1)
    sum = ct.full((TILE_M, TILE_N), 0, dtype=ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(TILE_M, TILE_K))):
        left = ct.load(a, index=(row, k), shape=(TILE_M, TILE_K), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(b, (k, column), (TILE_K, TILE_N), padding_mode=ct.PaddingMode.ZERO)
        sum = ct.mma(left, right, sum)
    ct.store(c, index=(row, column), tile=ct.astype(sum, c.dtype))


def matmul(a, b):
    m, n = a.shape[0], b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    tile_m, tile_n, tile_k = 64, 64, 64  # fits every GPU
    grid = (ct.cdiv(m, tile_m), ct.cdiv(n, tile_n))
    args = (a, b, c, tile_m, tile_n, tile_k)
    ct.launch(torch.cuda.current_stream(), grid, matmul_kernel, args)
    return c
"""
    after = before.replace("= 64, 64, 64 ", "= 128, 128, 64 ")

    trial = TileTrial(
        kernel="matmul_kernel",
        arguments=((F16, 2), (F16, 2), (F16, 2), 64, 64, 64),
        arguments_after=((F16, 2), (F16, 2), (F16, 2), 128, 128, 64),
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """The sizes worth trying for the constants that are tile sizes and nothing else."""
        return ChangeableTiles.of(CUTILE, following(CUTILE, subject).source).variants()

    def apply(self, subject: Subject, params: Params) -> str:
        """Set them where the launches take them from."""
        return ChangeableTiles.of(CUTILE, following(CUTILE, subject).source).resize(params)
