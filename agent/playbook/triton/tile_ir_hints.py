"""Hints that only Triton's Tile IR backend knows: occupancy, pairs of blocks, deeper stages.

When: a Triton kernel that is also to run on the Tile IR backend, on sm_100 or sm_103. Needs
    judgement, because stock Triton fails on them: `Config(occupancy=2)` is a TypeError, and
    `occupancy` among the constants a KeyError at the launch, in the middle of tuning.
Do: `tile-agent tileir apply` gives dots tensor descriptors, and appends configs behind a gate that
    is false without the backend.
    By class: for products `num_ctas=2`, occupancy 1 to 4, 4 to 6 stages, tiles of 256; for rows and
    reductions occupancy 2 and 4; for point-wise kernels 1 to 16. `num_warps` is not swept: the
    backend ignores it.
Risk: none behind the gate. `num_ctas=2` is refused on sm_80, does nothing for Triton's own code on
    sm_90 and sm_100, and must not be used on sm_120. Tile IR orders no memory accesses: kernels
    that work in place, split K or lock may be silently wrong there.
Source: the README of Triton-to-tile-IR and its tuning tips; the Tile IR skill of TensorRT-LLM
    claims 1.2 to 2 times for products, 2 to 5 for normalizations, unverified here. Compiled with
    Triton 3.6, `num_ctas=2` brings neither multicast nor `cta_group::2` into a plain product.
"""

from __future__ import annotations

from typing import ClassVar

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Subject
from agent.analysis.triton.arguments import rewritten
from agent.analysis.triton.dialect import TRITON
from agent.playbook.base import Advice

TILE_IR = (100, 103)


class TileIrHints(Advice):
    """Prose for a model or a person."""

    name = "tile-ir-hints"
    title = "hints for Tile IR"
    backend = "triton"
    family = "tile-ir"
    priority: ClassVar = {KernelClass.COMPUTE: 95, KernelClass.BALANCED: 95, KernelClass.MEMORY: 95}
    expected = "nothing without the Tile IR backend; claims of 1.2 to 5 times with it"
    hypothesis = "Tile IR sizes warps itself, and asks for occupancy and pairs of blocks instead."

    def fits(self, subject: Subject) -> str:
        """A kernel that neither works in place nor waits, on a GPU that Tile IR is made for."""
        if subject.hardware.interpreted:
            raise NotApplicable("Triton's interpreter has no Tile IR: it takes a GPU of sm_100")
        if subject.hardware.sm and subject.hardware.sm not in TILE_IR:
            raise NotApplicable(
                f"sm_{subject.hardware.sm} is not what Triton's Tile IR is made for"
            )
        for kernel in TRITON.launched(subject.source):
            if again := rewritten(subject.source, kernel):
                raise NotApplicable(f"{kernel.name} reads and writes {again[0]}, unordered there")
        if not TRITON.launched(subject.source):
            raise NotApplicable("no Triton kernel is launched here")
        return "every launched kernel reads and writes different tensors"
