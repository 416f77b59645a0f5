"""The grid of a cuTile launch, and where the kernel reads its block index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from agent.analysis.common.aliases import not_launched
from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.provenance import tile_names
from agent.analysis.common.reaching_definitions import traced, value_of
from agent.analysis.common.subject import NotApplicable
from agent.analysis.cutile.dialect import CT, CUTILE, grid_axis
from agent.syntax import Source, descendants, positional

BID, NUM_BLOCKS = f"{CT}bid", f"{CT}num_blocks"


@dataclass(frozen=True)
class BlockIndex:
    """A call of `ct.bid` or `ct.num_blocks`."""

    call: cst.Call
    axis: int


def block_indices(
    source: Source, kernel: Kernel, *, may_count: bool = False
) -> tuple[BlockIndex, ...]:
    """Where a kernel asks for its block. Raises `NotApplicable` when that is not all of it.

    A helper that asks is more than can be followed; so is a question for the size of the grid,
    unless `may_count`.
    """
    for function in CUTILE.reached(source, kernel):
        wanted = (NUM_BLOCKS,) if function is kernel.function else (BID, NUM_BLOCKS)
        if function is kernel.function and may_count:
            continue
        for call in CUTILE.find(source, function.node.body, wanted):
            raise NotApplicable(
                f"line {source.line(call)} of {function.name} deals with the grid itself: "
                f"`{source.code(call)}`"
            )
    found = _along(source, kernel, BID)
    if not found:
        raise NotApplicable(f"{kernel.name} never asks which block it is")
    return found


def block_counts(source: Source, kernel: Kernel) -> tuple[BlockIndex, ...]:
    """Where a kernel asks for an extent of its grid."""
    return _along(source, kernel, NUM_BLOCKS)


def over_blocks(source: Source, kernel: Kernel) -> cst.For | cst.While | None:
    """A loop in which a block does what others would, were there more of them; None: no such.

    Its steps are `ct.num_blocks`, under a name or not; or it counts from the number of the block,
    along the only axis that the kernel asks for, by something else than one or a tile's length.
    """
    body = kernel.function.node.body
    asked = CUTILE.find(source, body, (BID,))
    one_axis = len({grid_axis(call) for call in asked}) == 1
    tiles = tile_names(CUTILE, source, kernel)
    for loop in descendants(body, cst.For):
        given = positional(loop.iter) if isinstance(loop.iter, cst.Call) else []
        if len(given) != 3:
            continue
        begin, step = (value_of(source, given[place]) for place in (0, 2))
        by_one = source.code(step) == "1" or source.code(step) in tiles
        counts = isinstance(begin, cst.Call) and source.name(begin.func) == BID
        if _is_count(source, step) or (counts and one_axis and not by_one):
            return loop
    for waiting in descendants(body, cst.While):
        if any(_is_count(source, s.value) for s in descendants(waiting.body, cst.AugAssign)):
            return waiting
    return None


def _is_count(source: Source, expression: cst.BaseExpression) -> bool:
    """Whether an expression is an extent of the grid, or a product with one."""
    match value_of(source, expression):
        case cst.Call() as call:
            return source.name(call.func) == NUM_BLOCKS
        case cst.BinaryOperation(operator=cst.Multiply()) as product:
            return any(_is_count(source, side) for side in (product.left, product.right))
    return False


def _along(source: Source, kernel: Kernel, function: str) -> tuple[BlockIndex, ...]:
    found = []
    for call in CUTILE.find(source, kernel.function.node.body, (function,)):
        axis = grid_axis(call)
        if axis is None:
            raise NotApplicable(f"line {source.line(call)} asks for a block along a computed axis")
        found.append(BlockIndex(call, axis))
    return tuple(found)


def launches(source: Source, kernel: Kernel) -> tuple[Launch, ...]:
    """The launches of a kernel, all in plain sight. Raises `NotApplicable` otherwise."""
    if (tuning := CUTILE.tuned(source, kernel)) is not None:
        raise NotApplicable(f"{kernel.name} is tuned at line {source.line(tuning)}")
    nodes = {launch.node for launch in kernel.launches}
    for name in source.mentions(kernel.function):
        if not any(around in nodes for around in source.ancestors(name)):
            raise NotApplicable(f"{kernel.name} is handed on at line {source.line(name)}")
    if not kernel.launches:
        raise not_launched(source, kernel)
    for launch in kernel.launches:
        if not launch.complete:
            line = source.line(launch.node)
            raise NotApplicable(f"the launch at line {line} does not show what it is given")
    return kernel.launches


def grid_of(source: Source, launch: Launch) -> Sequence[cst.BaseExpression]:
    """The extents of a launch's grid. Raises `NotApplicable` when it is no tuple."""
    grid = traced(source, launch.grid)
    if not isinstance(grid, cst.Tuple) or any(
        isinstance(e, cst.StarredElement) for e in grid.elements
    ):
        line = source.line(launch.node)
        raise NotApplicable(f"the grid at line {line} is no tuple: `{source.code(launch.grid)}`")
    return [element.value for element in grid.elements]
