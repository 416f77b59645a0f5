"""Whether a cuTile kernel covers its work with a grid of any size."""

from __future__ import annotations

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.cutile.blocks import BID, NUM_BLOCKS
from agent.analysis.cutile.dialect import CUTILE, grid_axis
from agent.syntax import Source, descendants, positional


def takes_any_grid(source: Source, kernel: Kernel) -> bool:
    """Whether all that the kernel does with the grid is `range(ct.bid(0), END, ct.num_blocks(0))`.

    One that also writes to a place of its block, or compares its number, depends on how many there
    are: partial sums have a buffer of that size.
    """
    allowed: set[cst.CSTNode] = set()
    for loop in descendants(kernel.function.node.body, cst.For):
        iterated = loop.iter
        if not isinstance(iterated, cst.Call) or source.name(iterated.func) not in CUTILE.ranges:
            continue
        given = positional(iterated)
        if len(given) == 3 and _asks(source, given[0], BID) and _asks(source, given[2], NUM_BLOCKS):
            allowed |= {given[0], given[2]}
    calls = [
        call
        for function in CUTILE.reached(source, kernel)
        for call in CUTILE.find(source, function.node.body, (BID, NUM_BLOCKS))
    ]
    return bool(allowed) and all(_serves(source, call, allowed) for call in calls)


def _asks(source: Source, expression: cst.BaseExpression, function: str) -> bool:
    """Whether an expression is that call along the first axis, in place or by a name."""
    call = source.resolve(expression)
    if not isinstance(call, cst.Call) or source.name(call.func) != function:
        return False
    return grid_axis(call) == 0


def _serves(source: Source, call: cst.CSTNode, allowed: set[cst.CSTNode]) -> bool:
    """Whether a call stands at such a place, or is assigned to a name that stands nowhere else."""
    if call in allowed:
        return True
    assign = next(source.ancestors(call), None)
    if not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
        return False
    target = assign.targets[0].target
    if not isinstance(target, cst.Name):
        return False
    assignments = source.assignments(target)
    return len(assignments) == 1 and all(use in allowed for use in source.uses(assignments[0]))
