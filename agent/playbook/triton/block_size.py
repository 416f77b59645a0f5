"""Change the sizes of the blocks that a program works on.

When: a Triton kernel whose `tl.constexpr` tile sizes are set to integers in the file. Not one whose
    block must hold a whole row, as with `next_power_of_2(n_cols)`. A matrix product is a matter of
    `blocks-and-warps`.
Do: half, double and four times the size, with the warps that are there; none that is longer than
    what tests were seen to launch has elements, up to a power of two.
Risk: sums in another order; else none to results while the constant is a tile size only, which is
    checked; a kernel without masks is only given smaller sizes, which divide what the present one
    divides.
Source: Triton's tutorials and Helion's heuristics: about 8 KiB of traffic a program for
    element-wise kernels on H100.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from agent.analysis.common.following import following
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.tile_extents import have_work
from agent.analysis.triton.tuners import check_untuned
from agent.playbook.base import REORDERED, Optimization
from agent.playbook.trial import P, TritonTrial
from agent.rewriting.common.tile_sizes import ChangeableTiles


class BlockSize(Optimization):
    """Other integers where the block sizes are set."""

    name = "block-size"
    title = "block size"
    backend = "triton"
    family = "tiles"
    priority: ClassVar = {KernelClass.COMPUTE: 56, KernelClass.BALANCED: 50, KernelClass.MEMORY: 36}
    expected = "10 to 50 % over a guessed size, as TileGym reports of tuning"
    hypothesis = "A larger block reuses more and launches less; a smaller one leaves more of them."
    changes_rounding = REORDERED
    example: ClassVar[Params] = {"BLOCK": 2048}
    before = """\
import torch
import triton
import triton.language as tl

BLOCK_SIZE = 1024


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = x / (1 + tl.exp(-1.702 * x))
    tl.store(y_ptr + offsets, y, mask=mask)


def gelu(x):
    y = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), BLOCK_SIZE),)
    gelu_kernel[grid](x, y, x.numel(), BLOCK=BLOCK_SIZE)
    return y
"""
    after = before.replace("BLOCK_SIZE = 1024", "BLOCK_SIZE = 2048")

    trial = TritonTrial(
        kernel="gelu_kernel",
        types=(P, P, "i32", 1024),
        function="gelu",
        types_after=(P, P, "i32", 2048),
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """The sizes worth trying for the constants that are tile sizes and nothing else."""
        subject = following(TRITON, subject)
        tiles = _tiles(subject)
        products = [k.name for k in TRITON.chosen(subject.source)
                    if k.name in tiles.kernels and TRITON.has_dot(subject.source, k)]  # fmt: skip
        if not subject.hardware.interpreted and len(products) == len(tiles.kernels):
            raise NotApplicable(
                f"{products[0]} multiplies tiles, whose sizes go with their warps: blocks-and-warps"
            )
        found = tiles.variants()
        useful = [params for params in found if _has_work(subject, tiles, params)]
        if not useful:
            raise NotApplicable("every other block size is longer than what tests launch")
        return useful

    def apply(self, subject: Subject, params: Params) -> str:
        """Set them where the launches take them from."""
        return _tiles(following(TRITON, subject)).resize(params)


def _has_work(subject: Subject, tiles: ChangeableTiles, params: Params) -> bool:
    sizes = dict(params)
    name = sizes.pop("kernel", None) or next(iter(tiles.kernels))
    (kernel,) = (k for k in TRITON.kernels(subject.source) if k.name == name and k.launches)
    return have_work(subject, kernel, {constant: int(size) for constant, size in sizes.items()})


def _tiles(subject: Subject) -> ChangeableTiles:
    kernels = [k for k in TRITON.kernels(subject.source) if k.launches]
    check_untuned(subject.source, kernels, "the block sizes")
    return ChangeableTiles.of(TRITON, subject.source)
