"""Scale a block size that the host computes.

When: a Triton kernel whose `tl.constexpr` tile size the host computes, as `min(2048,
    triton.next_power_of_2(n))` or by a function of the package, and uses for grids and launches
    alone. Not a block that must hold a whole row.
Do: `BLOCK = min(2 * BLOCK, 65536)` above the first use; sweep a quarter, half, double, four times.
Risk: none to results while the name holds a tile size only, which is checked; a kernel without
    masks is only given parts of the present size. What the author's choice was made for is scaled
    with it: a block may become too large for the registers, and the launch then fails.
Source: 32 of 312 public files with launched Triton kernels compute such a size
    (`python -m benchmarks.reach`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import ClassVar

import libcst as cst

from agent.analysis.common.builtin_names import check_builtins
from agent.analysis.common.computed_sizes import ComputedTile, computed_tiles
from agent.analysis.common.dialect import Kernel
from agent.analysis.common.each_kernel import of_each
from agent.analysis.common.following import following
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.size_changes import SMALLEST_DOT
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.tuners import check_untuned
from agent.playbook.base import REORDERED, Optimization
from agent.playbook.trial import P, TritonTrial
from agent.rewriting.common.preceding import preceded
from agent.rewriting.common.tile_sizes import MOST_ELEMENTS
from agent.rewriting.triton.loop_sizes import SHRUNK, loop_sizes
from agent.syntax import Source

FACTORS = (2, 0.5, 4, 0.25)
MOST_VARIANTS = 8
IN_LOOP = "loop-blocks chooses it at the launch, with warps and stages"


class ScaledBlocks(Optimization):
    """A block size times two, where it has been computed."""

    name = "scaled-blocks"
    title = "scaled block"
    backend = "triton"
    family = "tiles"
    priority: ClassVar = {KernelClass.COMPUTE: 44, KernelClass.BALANCED: 38, KernelClass.MEMORY: 26}
    expected = "what a size gives that the author's formula does not reach: to be measured"
    hypothesis = "The formula was made for another GPU, or for another length."
    changes_rounding = REORDERED
    example: ClassVar[Params] = {"block": "BLOCK", "factor": 2}
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def square_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, x * x, mask=offsets < n)


def square(x):
    y = torch.empty_like(x)
    n = x.numel()
    BLOCK = min(1024, triton.next_power_of_2(n))
    square_kernel[(triton.cdiv(n, BLOCK),)](x, y, n, BLOCK)
    return y
"""
    after = before.replace(
        "    square_kernel[", "    BLOCK = min(2 * BLOCK, 65536)\n    square_kernel["
    )

    trial = TritonTrial(kernel="square_kernel", types=(P, P, "i32", 1024), function="square")

    def variants(self, subject: Subject) -> Sequence[Params]:
        """The factors of each size; none that is there already."""
        subject = following(TRITON, subject)
        found: list[Params] = []
        for tile in _tiles(subject):
            now = _factor(subject.source, tile)
            found += [
                {"block": tile.name, "factor": factor}
                for factor in FACTORS
                if factor != now and _may(tile, factor)
            ]
        if not found:
            raise NotApplicable(f"no block can grow, an access is unguarded, or shrink: {SHRUNK}")
        return found[:MOST_VARIANTS]

    def apply(self, subject: Subject, params: Params) -> str:
        """Scale one size, instead of how it is scaled already."""
        subject = following(TRITON, subject)
        factor = float(params["factor"])
        tiles = {tile.name: tile for tile in _tiles(subject)}
        tile = tiles.get(str(params["block"]))
        if tile is None:
            raise NotApplicable(f"{params['block']} is no block size that can be scaled")
        if not _may(tile, factor):
            why = "grow: an access is unguarded" if factor > 1 else f"shrink: {SHRUNK}"
            raise NotApplicable(f"{tile.name} cannot {why}")
        if _factor(subject.source, tile) == factor:
            raise NotApplicable(f"{tile.name} is scaled by {params['factor']} already")
        written = _text(subject.source, tile, factor)
        present = _scaling(subject.source, tile)
        if present is not None:
            return subject.source.rewrite(
                {present: lambda old: preceded(old, [written], keep=False)}
            )
        return subject.source.rewrite({tile.place: lambda old: preceded(old, [written])})

    def describe(self, params: Params) -> str:
        """The text of the table: 'scaled block (2 BLOCK)'."""
        return f"{self.title} ({params['factor']:g} {params['block']})" if params else self.title


def _tiles(subject: Subject) -> list[ComputedTile]:
    source = subject.source

    def computed(kernel: Kernel) -> list[ComputedTile]:
        check_untuned(source, [kernel], "the block sizes")
        for launch in kernel.launches:
            check_builtins(source, launch.node, "max", "min")
        looped, _ = ((), ()) if subject.hardware.interpreted else loop_sizes(source, kernel)
        elsewhere = {size.constant: IN_LOOP for size in looped}
        return [*computed_tiles(TRITON, source, kernel, elsewhere)]

    each = of_each(TRITON.chosen(source), computed, "no Triton kernel is launched here")
    found: dict[str, ComputedTile] = {}
    for tile in chain.from_iterable(each):
        found.setdefault(tile.name, tile)
    return list(found.values())


def _may(tile: ComputedTile, factor: float) -> bool:
    return tile.changes.may_grow if factor > 1 else tile.changes.may_shrink


def _text(source: Source, tile: ComputedTile, factor: float) -> str:
    """The statement: a tile has an element at least, and no more than Triton takes.

    That of a product has as many as its own size, where that is less than the least of one now.
    """
    name = tile.name
    if factor > 1:
        return f"{name} = min({factor:g} * {name}, {MOST_ELEMENTS})"
    least = f"min({name}, {SMALLEST_DOT})" if _is_of_product(source, tile) else "1"
    return f"{name} = max({name} // {1 / factor:g}, {least})"


def _is_of_product(source: Source, tile: ComputedTile) -> bool:
    """Whether some kernel with a `tl.dot` is given the size."""
    function = source.enclosing(tile.place)
    return any(
        launch.function is function
        and any(isinstance(v, cst.Name) and v.value == tile.name for v in launch.arguments.values())
        for kernel in TRITON.launched(source)
        if TRITON.has_dot(source, kernel)
        for launch in kernel.launches
    )


def _scaling(source: Source, tile: ComputedTile) -> cst.SimpleStatementLine | None:
    """The statement above a first use that scales the size already."""
    block = next(source.ancestors(tile.place))
    assert isinstance(block, cst.IndentedBlock)
    place = next(n for n, statement in enumerate(block.body) if statement is tile.place)
    above = block.body[place - 1] if place else None
    if isinstance(above, cst.SimpleStatementLine) and _scaled_by(source, tile, above) is not None:
        return above
    return None


def _factor(source: Source, tile: ComputedTile) -> float:
    line = _scaling(source, tile)
    return (_scaled_by(source, tile, line) if line is not None else None) or 1.0


def _scaled_by(source: Source, tile: ComputedTile, line: cst.SimpleStatementLine) -> float | None:
    text, name = source.code(line.body[0]), re.escape(tile.name)
    least = rf"(?:1|{SMALLEST_DOT}|min\({name}, {SMALLEST_DOT}\))"
    if grown := re.fullmatch(rf"{name} = min\((\d+) \* {name}, {MOST_ELEMENTS}\)", text):
        return float(grown[1])
    if shrunk := re.fullmatch(rf"{name} = max\({name} // (\d+), {least}\)", text):
        return 1 / float(shrunk[1])
    return None
