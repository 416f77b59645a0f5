"""Start the blocks that take longest first.

When: a cuTile kernel whose loop runs the further the higher the number of its block, as that of a
    causal attention does: `range(ct.cdiv((i + 1) * TILE_M, TILE_N))`.
Do: count that axis of the grid from its end: `ct.num_blocks(0) - 1 - ct.bid(0)`. Blocks are started
    in the order of their number, so that the last ones to run are then short. Where one number is
    taken apart by `//` and `%`, it is turned round as a whole.
Risk: none to results: the blocks are the same ones in another order, for every grid. Blocks that
    wait for one another might hang, so kernels with locks are refused. Blocks that stay and share
    out the tiles beforehand gain nothing by their order.
Source: Graham's bound for list scheduling: the end is off by the last job at most, and by a third
    of the optimum with the longest first. Measured on an NVIDIA H200 with cuda-tile 1.7: a causal
    attention of 4 x 32 x 2048 x 128 in bf16, with tiles of 64 x 128, occupancy 2 and a loop of its
    own for the tiles without a mask, takes 0.3061 ms in plain order and 0.2865 ms with the longest
    first. With one loop short looks promised 1.6 % at tiles of 64 x 64, and a loss at 64 x 128.
"""

from __future__ import annotations

from typing import ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.growing_loops import GrowingLoops
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile.blocks import BlockIndex, block_indices, over_blocks
from agent.analysis.cutile.dialect import CUTILE
from agent.analysis.cutile.waiting import check_never_waits
from agent.playbook.base import OfEachKernel
from agent.playbook.trial import F32, TileTrial
from agent.rewriting.cutile.blocks import replacing, spelling
from agent.syntax import Edits, Source


class LongestBlocksFirst(OfEachKernel):
    """`ct.bid(0)` -> `ct.num_blocks(0) - 1 - ct.bid(0)`."""

    name = "longest-blocks-first"
    title = "longest blocks first"
    backend = "cutile"
    family = "order"
    priority: ClassVar = {
        KernelClass.MEMORY: 300,
        KernelClass.BALANCED: 300,
        KernelClass.COMPUTE: 50,
    }
    expected = "0 to 6 % of a causal attention on an H200; nothing where all blocks take as long"
    hypothesis = "The GPU runs empty sooner when the blocks that end last are short ones."
    example: ClassVar[Params] = {}
    before = """\
import cuda.tile as ct
import torch

TILE = 256


@ct.kernel
def prefix_sum_kernel(x, y):
    i = ct.bid(0)
    before = ct.zeros((TILE,), dtype=ct.float32)
    for j in range(i):
        before += ct.load(x, index=(j,), shape=(TILE,), padding_mode=ct.PaddingMode.ZERO)
    tile = ct.load(x, index=(i,), shape=(TILE,), padding_mode=ct.PaddingMode.ZERO)
    sums = ct.sum(before) + ct.cumsum(ct.astype(tile, ct.float32), axis=0)
    ct.store(y, index=(i,), tile=sums)


def prefix_sum(x):
    x = x.reshape(-1)
    y = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    grid = (ct.cdiv(x.shape[0], TILE),)
    ct.launch(torch.cuda.current_stream(), grid, prefix_sum_kernel, (x, y))
    return y
"""
    after = before.replace("i = ct.bid(0)", "i = ct.num_blocks(0) - 1 - ct.bid(0)")

    trial = TileTrial(kernel="prefix_sum_kernel", arguments=((F32, 1), (F32, 1)))

    def edits(self, subject: Subject, kernel: Kernel, _: Params) -> Edits:
        """Turn the axis round that the loops depend on, wherever the kernel asks for it."""
        source = subject.source
        edits = {}
        for index in _growing(source, kernel):
            ct, asked = spelling(source, index.call), source.code(index.call)
            turned = f"{ct}.num_blocks({index.axis}) - 1 - {asked}"
            edits[index.call] = replacing(source, index.call, turned)
        return edits


def _growing(source: Source, kernel: Kernel) -> list[BlockIndex]:
    """Where the number of the block is asked for that decides how far a loop runs."""
    check_never_waits(source, kernel)
    indices = block_indices(source, kernel, may_count=True)
    for axis in dict.fromkeys(index.axis for index in indices):
        same = [index for index in indices if index.axis == axis]
        if GrowingLoops(CUTILE, source, kernel, [each.call for each in same]).run_further():
            return same
    if (loop := over_blocks(source, kernel)) is not None:
        raise NotApplicable(
            f"the loop of {kernel.name} at line {source.line(loop)} shares out the tiles beforehand"
        )
    asked: list[cst.CSTNode] = [index.call for index in indices]
    raise NotApplicable(GrowingLoops(CUTILE, source, kernel, asked).otherwise("blocks"))
