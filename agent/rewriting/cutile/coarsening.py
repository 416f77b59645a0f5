"""Gives a block several items where it had one, with a grid that shrinks accordingly.

Shared by the entries that widen a tile along an axis on which each block had a single element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import libcst as cst

from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.subject import NotApplicable
from agent.analysis.cutile.accesses import checks_bounds
from agent.analysis.cutile.blocks import launches
from agent.analysis.cutile.dialect import CT, CUTILE, grid_axis
from agent.analysis.cutile.extents import Sizes
from agent.analysis.cutile.spelling import tile_module
from agent.syntax import Source, argument, assigned, assigned_each, descendants, keyword

LOAD, STORE = f"{CT}load", f"{CT}store"


def block_name(source: Source, kernel: Kernel, axis: int, *, first: bool = False) -> str:
    """The name that holds the block along an axis of the grid; it is used in indices only.

    Args:
        source: the file.
        kernel: what asks for its block.
        axis: of the grid.
        first: it has to be the first of the indices.

    Raises:
        NotApplicable: the kernel asks for it otherwise, or uses it for more.
    """
    launches(source, kernel)  # all in sight, or it raises
    if len(CUTILE.reached(source, kernel)) > 1:
        raise NotApplicable("it calls helpers")
    body = kernel.function.node.body
    blocks = [call for call in CUTILE.find(source, body, CUTILE.program_ids)
              if grid_axis(call) == axis]  # fmt: skip
    if len(blocks) != 1:
        raise NotApplicable(
            f"it asks {len(blocks)} times for the block along the grid's axis {axis}"
        )
    names = [t.value for t, value in assigned_each(body)
             if value is blocks[0] and isinstance(t, cst.Name)]  # fmt: skip
    if len(names) != 1:
        raise NotApplicable("its block is not kept under a name")
    (name,) = names
    last = 1 if first else None
    targets = [n for t, _ in assigned(body) for n in descendants(t, cst.Name) if n.value == name]
    indices = [item for call in CUTILE.find(source, body, (LOAD, STORE))
               for item in elements(argument(call, 1, "index"))[:last]]  # fmt: skip
    uses = [n for n in descendants(body, cst.Name) if n.value == name and n not in targets]
    other = next((use for use in uses if not any(use is item for item in indices)), None)
    if len(targets) != 1 or other is not None:
        line = source.line(other or targets[-1])
        what = "row" if first else "index"
        raise NotApplicable(f"line {line} uses `{name}` for more than the {what} of a tile")
    return name


@dataclass(frozen=True)
class Widened:
    """What gives a block of a kernel several items."""

    edges: tuple[cst.Integer, ...]
    """The `1` of every tile shape that stands for the one item."""
    extents: tuple[cst.BaseExpression, ...]
    """How many items there are, in every grid."""


def widened(source: Source, kernels: Iterable[Widened], items: str) -> str:
    """The file with so many items a block, and grids that are shorter by as much."""
    tile = tile_module(source)
    edits: dict[Any, Any] = {}
    for kernel in kernels:
        edits |= {edge: lambda old: old.with_changes(value=items) for edge in kernel.edges}
        edits |= {extent: divided(tile, items) for extent in kernel.extents}
    return source.rewrite(edits)


def check_body(source: Source, kernel: Kernel) -> None:
    """Refuse what takes tiles apart or multiplies them, and is no call."""
    for node in descendants(kernel.function.node.body, cst.Subscript):
        if not isinstance(node.value, cst.Attribute) or node.value.attr.value != "shape":
            raise NotApplicable(f"line {source.line(node)} takes a tile apart")
    for product in descendants(kernel.function.node.body, cst.BinaryOperation):
        if isinstance(product.operator, cst.MatrixMultiply):
            raise NotApplicable(f"line {source.line(product)} multiplies tiles")


def check_access(source: Source, call: cst.Call) -> None:
    """Refuse a load or store that another tile could take out of its array, or to other axes."""
    if not checks_bounds(source, call):
        raise NotApplicable(f"line {source.line(call)} does not check bounds")
    if keyword(call, "order") is not None:
        raise NotApplicable(f"line {source.line(call)} orders the axes anew")


def place_of(call: cst.Call, name: str) -> int | None:
    """Where a name is among the indices of a load or store."""
    for place, item in enumerate(elements(argument(call, 1, "index"))):
        if isinstance(item, cst.Name) and item.value == name:
            return place
    return None


def count(
    source: Source, kernel: Kernel, launch: Launch, axis: int, places: Mapping[str, int]
) -> cst.BaseExpression:
    """The extent of a grid along an axis, if what the kernel stores to ends with it.

    Args:
        source: the file.
        kernel: what is launched.
        launch: where the grid is.
        axis: of the grid.
        places: the array's axis that the grid's stands for, of each array that is stored to.
    """
    line = source.line(launch.node)
    grid = source.resolve(launch.grid)
    if not isinstance(grid, cst.Tuple) or (grid is not launch.grid and _is_shared(source, launch)):
        raise NotApplicable(f"the launch at line {line} shows no grid of its own")
    ranks = {array.value: len(elements(argument(call, 1, "index")))
             for call in CUTILE.find(source, kernel.function.node.body, (LOAD, STORE))
             if isinstance(array := argument(call, 0, "array"), cst.Name)}  # fmt: skip
    sizes = Sizes(source, kernel, launch, ranks)
    for call in CUTILE.find(source, kernel.function.node.body, (STORE,)):
        array = argument(call, 0, "array")
        place = places.get(array.value) if isinstance(array, cst.Name) else None
        if array is None or place is None or sizes.extent(array, place) != sizes.grid(axis):
            name = source.code(array) if array is not None else "an array"
            what = "row" if place == 0 else f"index along axis {place}"
            raise NotApplicable(
                f"nothing says that the grid at line {line} has a block for each {what} of {name}"
            )
    if axis >= len(grid.elements):
        raise NotApplicable(f"the grid at line {line} has no axis {axis}")
    return grid.elements[axis].value


def divided(tile: str, by: str) -> Callable[[Any], cst.CSTNode]:
    """The edit that makes an extent of a grid `by` times smaller, rounded up."""

    def edit(whole: cst.BaseExpression) -> cst.CSTNode:
        call = cst.ensure_type(cst.parse_expression(f"{tile}.cdiv(0, {by})"), cst.Call)
        return call.with_changes(args=[call.args[0].with_changes(value=whole), call.args[1]])

    return edit


def elements(node: cst.BaseExpression | None) -> tuple[cst.BaseExpression, ...]:
    """The elements of a tuple that is written in place; none otherwise."""
    if isinstance(node, cst.Tuple | cst.List):
        return tuple(element.value for element in node.elements)
    return ()


def casts(call: cst.Call) -> bool:
    """Whether it is `tile.astype(...)`."""
    return isinstance(call.func, cst.Attribute) and call.func.attr.value == "astype"


def _is_shared(source: Source, launch: Launch) -> bool:
    if not isinstance(launch.grid, cst.Name):
        return True
    uses = {use for a in source.assignments(launch.grid) for use in source.uses(a)}
    return uses != {launch.grid}
