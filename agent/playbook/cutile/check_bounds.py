"""Do without the check of bounds where tiles divide the array.

When: a cuTile kernel without TMA (on sm_80, of gathers, or where the compiler chose plain loads)
    whose tiles always end with the array: the extent is a multiple of the tile.
Do: let the host decide. Hand the kernel a constant, `CHECK: ct.Constant[bool]`, that is
    `x.shape[1] % TILE != 0`, and pass `check_bounds=CHECK` to `ct.load`, `ct.store`, `ct.gather`
    and `ct.scatter`. Never write `check_bounds=False` because the tests' shapes happen to be
    multiples: an access beyond the array is then undefined.
Risk: memory is read and overwritten out of bounds where the condition is wrong, so that it needs
    judgement: it must hold for every axis and every array of the access, and for every block.
Source: the documentation of cuda.tile (since tileiras 13.4); TileGym reports +3 to +13 % (pull
    request 111). Compiled with cuda-tile 1.7, a copy of float32 rows falls from 94 to 49
    instructions for sm_90 and from 68 to 25 for sm_80. In a 128 x 128 x 64 product for sm_90 and
    sm_100, which TMA loads, nothing changes. Static row lengths (static-shapes) give most of it
    without a risk: 62 and 36 instructions.
"""

from __future__ import annotations

from typing import ClassVar

from agent.backends.base import KernelClass
from agent.backends.cutile import CT, CUTILE
from agent.playbook.base import Advice, NotApplicable, Subject
from agent.syntax import keyword

CHECKED = tuple(f"{CT}{name}" for name in ("gather", "load", "scatter", "store"))


class CheckBounds(Advice):
    """`ct.load(...)` -> `ct.load(..., check_bounds=CHECK)`, CHECK decided at the launch."""

    name = "check-bounds"
    title = "no checks of bounds"
    backend = "cutile"
    family = "bounds"
    priority: ClassVar = {
        KernelClass.MEMORY: 180,
        KernelClass.BALANCED: 210,
        KernelClass.COMPUTE: 180,
    }
    expected = "3 to 13 % without TMA (TileGym), nothing with it"
    hypothesis = "Half of a copy's instructions compare indices with extents."

    def fits(self, subject: Subject) -> str:
        """How many accesses of the launched kernels check, and the first of them."""
        source = subject.source
        calls = {
            call: None
            for kernel in CUTILE.launched(source)
            for function in CUTILE.reached(source, kernel)
            for call in CUTILE.find(source, function.node.body, CHECKED)
            if keyword(call, "check_bounds") is None
        }
        if not calls:
            raise NotApplicable("no launched kernel has an access that checks its bounds")
        line = source.line(next(iter(calls)))
        return f"{len(calls)} accesses check their bounds, the first at line {line}"
