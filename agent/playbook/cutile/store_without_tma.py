"""Store tiles with plain instructions where the tensor memory accelerator does not pay.

When: a cuTile kernel that waits for memory and stores with `ct.store`, on sm_90 or later.
Do: pass `allow_tma=False` to `ct.store`.
Risk: none to results. Large tiles of a matrix product are better off with TMA.
Source: TileGym's cuTile playbook, item F; it reports +30 % for an rms_norm on a B200, and a
    layer_norm whose winner flipped three times. Compiled for sm_90 with cuda-tile 1.7, 16 TMA
    stores become 4 vector stores and the shared memory falls from 50432 to 33920 bytes.
"""

from __future__ import annotations

from typing import ClassVar

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile.dialect import CUTILE
from agent.playbook.base import Optimization
from agent.playbook.trial import F32, TileTrial
from agent.syntax import keyword, setting

FIRST_TMA = 90


class StoreWithoutTma(Optimization):
    """`ct.store(...)` -> `ct.store(..., allow_tma=False)`."""

    name = "store-without-tma"
    title = "store without TMA"
    backend = "cutile"
    family = "tma"
    priority: ClassVar = {
        KernelClass.MEMORY: 30,
        KernelClass.BALANCED: 60,
        KernelClass.COMPUTE: 130,
    }
    expected = "up to 30 % for row-wise kernels, a loss for others"
    hypothesis = "A store from registers skips shared memory, which leaves room for more blocks."
    example: ClassVar[Params] = {}
    before = """\
import cuda.tile as ct
import torch


@ct.kernel(occupancy=4)
def scale_kernel(x, y, factor: float, TILE: ct.Constant[int]):
    row, column = ct.bid(0), ct.bid(1)
    tile = ct.load(x, index=(row, column), shape=(1, TILE))
    ct.store(y, index=(row, column), tile=tile * factor)


def scale(x, factor):
    y = torch.empty_like(x)
    grid = (x.shape[0], ct.cdiv(x.shape[1], 1024))
    ct.launch(torch.cuda.current_stream(), grid, scale_kernel, (x, y, factor, 1024))
    return y
"""
    after = before.replace("tile=tile * factor)", "tile=tile * factor, allow_tma=False)")

    trial = TileTrial(
        kernel="scale_kernel", arguments=((F32, 2), (F32, 2), 2.0, 1024), fp32_only=True
    )

    def apply(self, subject: Subject, params: Params) -> str:  # noqa: ARG002
        """Forbid it on every store of the launched kernels and of the helpers they call."""
        source = subject.source
        if 0 < subject.hardware.sm < FIRST_TMA:
            raise NotApplicable(f"sm_{subject.hardware.sm} has no TMA")
        stores = {
            call: setting("allow_tma", "False")
            for kernel in CUTILE.chosen(source)
            for function in CUTILE.reached(source, kernel)
            for call in CUTILE.find(source, function.node.body, ("cuda.tile.store",))
            if (given := keyword(call, "allow_tma")) is None
            or source.code(given) in ("True", "None")
        }
        if not stores:
            raise NotApplicable("no ct.store is left that may use TMA")
        return source.rewrite(stores)
