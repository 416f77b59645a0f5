"""Launch several small independent pieces of work as one.

When: host code that launches a cuTile kernel once for each of several inputs or segments, where a
    launch does so little that starting it takes longer.
Do: give the kernel a fixed number of slots, one input view and its extents a slot, and a further
    axis of the grid, `ct.bid(2)`, that chooses the slot by branches. Keep the tile shape the same
    in all branches. Launch as many slots as there are entries; fill the others with any valid view.
    Sweep 2, 4 and 8 slots. Look at the width of the stores afterwards: where the bounds of a slice
    are divisible by 16, pass 16 as a constant (else 1) and write
    `start = start // DIVISOR * DIVISOR`, so that the compiler may keep 128-bit stores.
    Lists of alike arrays are one launch by batched-launches.
Risk: a slot that is chosen wrongly corrupts another's result. Views of different type or rank
    cannot share a branch; put them into launches of their own.
Source: TileGym's cuTile playbook, item K, which claims +10 % to +70 % where launches dominate.
"""

from __future__ import annotations

from typing import ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel, Launch, where
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Subject
from agent.analysis.cutile.dialect import CUTILE
from agent.analysis.cutile.uses import Uses
from agent.playbook.base import Advice
from agent.syntax import Source


class BatchedCopies(Advice):
    """Several launches -> one with slots."""

    name = "batched-copies"
    title = "several small launches as one"
    backend = "cutile"
    family = "launches"
    priority: ClassVar = {KernelClass.MEMORY: 210, KernelClass.BALANCED: 230}
    expected = "TileGym claims +10 % to +70 % where launches dominate"
    hypothesis = "A launch costs microseconds, which a small copy does not need."

    def fits(self, subject: Subject) -> str:
        """A kernel of single arrays and no product, launched in a loop or several times."""
        source = subject.source
        for kernel in CUTILE.chosen(source):
            if CUTILE.has_dot(source, kernel) or Uses(source, kernel).lists:
                continue
            for launch in kernel.launches:
                loop = _loop_around(source, launch)
                if loop is not None:
                    return (
                        f"{where(launch)} launches {kernel.name} in the loop at line "
                        f"{source.line(loop)}"
                    )
            if (several := _beside(source, kernel)) is not None:
                first, count = several
                return f"{where(first)} launches {kernel.name} {count} times in a row"
        raise NotApplicable("no function launches a kernel without a product more than once")


def _loop_around(source: Source, launch: Launch) -> cst.For | cst.While | None:
    for around in source.ancestors(launch.node):
        if isinstance(around, cst.For | cst.While):
            return around
        if isinstance(around, cst.FunctionDef):
            return None
    return None


def _beside(source: Source, kernel: Kernel) -> tuple[Launch, int] | None:
    """The first of several launches in one block of statements, none of them in a branch alone."""
    blocks: dict[cst.CSTNode, list[Launch]] = {}
    for launch in kernel.launches:
        block = next(
            a
            for a in source.ancestors(launch.node)
            if isinstance(a, cst.IndentedBlock | cst.Module)
        )
        blocks.setdefault(block, []).append(launch)
    return next(((found[0], len(found)) for found in blocks.values() if len(found) > 1), None)
