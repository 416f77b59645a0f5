"""Numbers of blocks that a launch gives: what they stand for goes with the size of a block."""

from __future__ import annotations

import libcst as cst

from agent.analysis.common.constant_flow import Flow
from agent.analysis.common.reaching_definitions import value_of


def begun_at_given(flow: Flow, loop: cst.For) -> cst.Call | None:
    """The `range(first, blocks)` of a loop that the launch tells the number of its first block.

    It goes up to a number of blocks, whether one by one or by as many as the grid has.
    """
    bounds = loop.iter
    if not isinstance(bounds, cst.Call) or len(bounds.args) < 2:
        return None
    start = bounds.args[0].value
    return bounds if flow.carries(bounds) and adds_given(flow, start) else None


def adds_given(flow: Flow, node: cst.BaseExpression) -> bool:
    """Whether a number of blocks is one that the launch gives, or adds that.

    What is taken off the number of a program is where its part of the grid begins.
    """
    behind = value_of(flow.source, node)
    if isinstance(behind, cst.Name):
        given = {p.name.value for p in flow.kernel.function.parameters}
        return behind.value in given - flow.names
    match behind:
        case cst.BinaryOperation(left=left, operator=cst.Add(), right=right):
            return adds_given(flow, left) or adds_given(flow, right)
        case cst.BinaryOperation(left=left, operator=cst.Subtract()):
            return adds_given(flow, left)
    return False
