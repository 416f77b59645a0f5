"""Loads of one element for all of a block, where what it stands for has a size of its own."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from agent.analysis.common.constant_flow import Flow, is_multiple_of
from agent.syntax import argument, assigned, descendants, names_in


def element_for_a_block(flow: Flow) -> cst.Call | None:
    """A load of one element for a whole tile, as `scales[start // 64]`: it is that of 64 at most.

    A smaller tile has the same scale for all of it, a larger one has several.
    """
    counting = {*flow.dialect.iotas}
    names = {
        loop.target.value
        for loop in descendants(flow.body, cst.For)
        if isinstance(loop.target, cst.Name)
        and isinstance(loop.iter, cst.Call)
        and (step := argument(loop.iter, 2, "step")) is not None
        and flow.carries(step)
    }
    tiles: set[str] = set()
    for target, value in assigned(flow.body):
        calls = descendants(value, cst.Call)
        if any(flow.called(call) in counting for call in calls):
            tiles.update(name.value for name in descendants(target, cst.Name))

    def is_element(node: cst.CSTNode) -> bool:
        """Whether it is the number of a tile's first element, or a name for it."""
        if isinstance(node, cst.Name):
            return node.value in names
        if not isinstance(node, cst.BinaryOperation):
            return False
        is_product = isinstance(node.operator, cst.Multiply)
        return (is_product and is_multiple_of(node, flow.sizes)) or any(
            is_element(side) for side in (node.left, node.right)
        )

    for target, value in assigned(flow.body):
        if isinstance(target, cst.Name) and target.value not in tiles and is_element(value):
            names.add(target.value)
    for call in flow.find(flow.body, flow.dialect.loads):
        for division in _divisions(flow, call):
            mentioned = names_in(division.left)
            calls = descendants(division.left, cst.Call)
            if (
                is_element(division.left)
                and not flow.carries(division.right)
                and not mentioned & tiles
                and not any(flow.called(c) in counting for c in calls)
            ):
                return call
    return None


def _divisions(flow: Flow, call: cst.Call) -> Iterator[cst.BinaryOperation]:
    """What divides in the places that a load is told, also behind names that are assigned once."""
    parts = [each.value for each in call.args]
    seen: set[str] = set()
    while parts:
        part = parts.pop()
        for division in descendants(part, cst.BinaryOperation):
            if isinstance(division.operator, cst.FloorDivide):
                yield division
        for name in descendants(part, cst.Name):
            behind = flow.source.resolve(name)
            if behind is not name and name.value not in seen:
                seen.add(name.value)
                parts.append(behind)
