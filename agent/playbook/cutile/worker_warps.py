"""Let eight warps instead of four work on a tile.

When: a cuTile kernel whose tile is large for 128 threads: many registers a thread, or spills.
Do: set `num_worker_warps=8` in `@ct.kernel`; where the file says 8, 4.
Risk: none to results. Small tiles leave half of the threads idle. cuda-tile 1.7 takes other powers
    of two with tileiras 13.5 or later only.
Source: compiled with cuda-tile 1.7 and tileiras 13.4, where 4 gives the code of no hint at all. A
    float16 rms_norm in tiles of 1024 columns falls from 112 to 51 registers a thread for sm_80 and
    from 64 to 40 for sm_90; a 256 x 128 x 64 float16 product loses its 1040 bytes of spills for
    sm_90. No public source gives a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Params, Subject
from agent.analysis.cutile.dialect import CUTILE
from agent.playbook.base import Optimization
from agent.playbook.trial import F32, TileTrial
from agent.rewriting.cutile.hints import hint_of, hintable, with_hint

HINT = "num_worker_warps"
DEFAULT = 4
SWEEP = (8, 4)


class WorkerWarps(Optimization):
    """`@ct.kernel` -> `@ct.kernel(num_worker_warps=8)`."""

    name = "worker-warps"
    title = "worker warps"
    backend = "cutile"
    family = "warps"
    revisit_after = frozenset({"rows", "tiles"})
    priority: ClassVar = {
        KernelClass.MEMORY: 90,
        KernelClass.BALANCED: 150,
        KernelClass.COMPUTE: 100,
    }
    expected = "not known; halves the registers a thread holds of a tile"
    hypothesis = "More threads share a tile, so that each needs fewer registers for it."
    example: ClassVar[Params] = {HINT: 8}
    before = """\
import cuda.tile as ct
import torch


@ct.kernel(occupancy=2)
def center_kernel(x, y, N: ct.Constant[int]):
    row = ct.bid(0)
    tile = ct.load(x, index=(row, 0), shape=(1, N), padding_mode=ct.PaddingMode.ZERO)
    mean = ct.sum(tile, axis=1, keepdims=True) / x.shape[1]
    ct.store(y, index=(row, 0), tile=tile - mean)


def center(x):
    y = torch.empty_like(x)
    n = 1 << (x.shape[1] - 1).bit_length()
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), center_kernel, (x, y, n))
    return y
"""
    after = before.replace("(occupancy=2)", "(occupancy=2, num_worker_warps=8)")

    trial = TileTrial(kernel="center_kernel", arguments=((F32, 2), (F32, 2), 1024))

    def variants(self, subject: Subject) -> Sequence[Params]:
        """Those that are not set for every kernel; four is what no hint means."""
        source = subject.source
        kernels = hintable(subject, HINT, CUTILE.chosen(source))
        present = {hint_of(subject, kernel, HINT) or DEFAULT for kernel in kernels}
        return [{HINT: value} for value in SWEEP if present != {value}]

    def apply(self, subject: Subject, params: Params) -> str:
        """Set it for every launched kernel."""
        kernels = hintable(subject, HINT, CUTILE.chosen(subject.source))
        return with_hint(subject, kernels, HINT, int(params[HINT]))
