"""Whether the programs of a grid cover an axis only with the block size that the grid is made for.

A loop over blocks covers its axis whatever their size. A loop whose bounds only mention the size,
as that of causal attention goes up to `(pid + 1) * BLOCK_M` in steps of another size, covers
nothing of the axis that is cut by it: there a smaller block leaves the end to no program.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from agent.analysis.common.block_numbers import is_count_of_blocks, multiplied, step_of
from agent.analysis.common.constant_flow import Flow, is_multiple_of
from agent.analysis.common.derived_names import derived_names
from agent.syntax import argument, assigned, children, descendants


def loop_covers(flow: Flow) -> bool:
    """Whether a loop covers the constant's axis, so that the grid need not be computed from it."""
    loops = [loop for loop in descendants(flow.body, cst.For) if _goes_over(flow, loop)]
    if not loops or _is_left_out(flow, loops):
        return False
    if any(_is_divided(flow, loop) for loop in loops):
        return True
    names = _numbers_of_programs(flow, loops)
    return not any(_asks(flow, count, names) for count in multiplied(flow))


def _is_left_out(flow: Flow, loops: list[cst.For]) -> bool:
    """Whether a branch that no loop goes through takes a block, as of rows that fit into one."""
    covering = set(loops)

    def takes_one(branch: cst.CSTNode) -> bool:
        calls = flow.find(branch, flow.dialect.iotas)
        return any(map(flow.carries, calls)) and not covering & {*descendants(branch, cst.For)}

    for choice in descendants(flow.body, cst.If):
        if choice.orelse is not None:
            sides = (choice.body, choice.orelse)
            if any(map(takes_one, sides)) and any(
                covering & {*descendants(side, cst.For)} for side in sides
            ):
                return True
        elif takes_one(choice.body) and any(True for _ in descendants(choice.body, cst.Return)):
            return True
    return False


def _numbers_of_programs(flow: Flow, loops: list[cst.For]) -> set[str]:
    """The names that are computed from the program's number, and not by a loop over all blocks."""
    covered = {id(loop.iter) for loop in loops}
    return derived_names(
        flow.body, lambda value, names: id(value) not in covered and _asks(flow, value, names)
    )


def _asks(flow: Flow, node: cst.CSTNode, names: set[str]) -> bool:
    """Whether a value is computed from the program's number, times what goes with no size.

    Times what does, as `pid * tl.cdiv(n, BLOCK * PARTS)` is, it is a place of the axis again.
    """
    if isinstance(node, cst.Name):
        return node.value in names
    if isinstance(node, cst.Call):
        called = flow.called(node)
        if called in flow.dialect.program_ids:
            return True
        if called in flow.dialect.loads:
            return False
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply):
        sides = node.left, node.right
        return not any(map(flow.carries, sides)) and any(_asks(flow, s, names) for s in sides)
    if isinstance(node, cst.Attribute | cst.Arg):
        return _asks(flow, node.value, names)
    return any(_asks(flow, child, names) for child in children(node))


def _is_divided(flow: Flow, loop: cst.For) -> bool:
    """Whether a loop leaves blocks to other programs: `range(pid * BLOCK, n, BLOCK * programs)`."""
    return any(
        isinstance(part, cst.BinaryOperation)
        and isinstance(part.operator, cst.Multiply)
        and is_multiple_of(part, flow.sizes)
        and not all(isinstance(side, cst.Integer) or is_multiple_of(side, flow.sizes)
                    for side in (part.left, part.right))
        for stride in _strides(flow, loop)
        for part in (stride, flow.source.resolve(stride))
    )  # fmt: skip


def _goes_over(flow: Flow, loop: cst.For) -> bool:
    """Whether a loop goes over blocks of the size: by its step, or up to how many there are."""
    step = step_of(flow, loop)
    if step is not None and flow.carries(step):
        return True
    return any(is_count_of_blocks(flow, node) for node in _bounds(flow, loop))


def _strides(flow: Flow, loop: cst.For) -> Iterator[cst.BaseExpression]:
    """What a loop goes on by, and what it divides an axis by to know how many rounds it takes."""
    if (step := step_of(flow, loop)) is not None:
        yield step
    for node in _bounds(flow, loop):
        for call in flow.find(node, flow.dialect.cdivs):
            divisor = argument(call, 1, "div")
            if divisor is not None:
                yield divisor
        for division in descendants(node, cst.BinaryOperation):
            if isinstance(division.operator, cst.FloorDivide):
                yield division.right


def _bounds(flow: Flow, loop: cst.For) -> list[cst.BaseExpression]:
    """The range of a loop and all that it is computed from."""
    values = [*assigned(flow.body)]
    found, seen = [loop.iter], set[str]()
    for node in found:
        for name in descendants(node, cst.Name):
            if name.value not in seen:
                seen.add(name.value)
                found += [
                    value
                    for target, value in values
                    if isinstance(target, cst.Name) and target.value == name.value
                ]
    return found
