"""Loops of a cuTile kernel that pass over the same row, tile by tile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

import libcst as cst

from agent.analysis.common.constant_flow import Flow
from agent.analysis.common.derived_names import is_no_variable
from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.growth import padding_that_counts
from agent.analysis.common.needed_sizes import needed_size
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.common.shared_elements import element_for_a_block
from agent.analysis.common.subject import NotApplicable
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.extents import Sizes
from agent.syntax import Edits, Source, argument, assigned, descendants, edited

RANGE = "builtins.range"
Node = TypeVar("Node", bound=cst.CSTNode)


@dataclass(frozen=True)
class RowLength:
    """How long the row is: what a parameter says, or its extent along an axis."""

    parameter: str
    axis: int | None


@dataclass(frozen=True)
class RowPasses:
    """The loops of a kernel that step through one row."""

    kernel: Kernel
    tile: str
    """The constant that is the length of a step."""
    length: RowLength
    loops: tuple[cst.For, ...]
    again: tuple[str, ...]
    """The loads that several passes make alike, as they are with 0 for the loops' counters."""


def row_passes(source: Source, kernel: Kernel) -> RowPasses:
    """The loops, where a longer tile would hold the row, and the rest of the kernel bears it.

    Raises:
        NotApplicable: there are no two such loops, they load nothing alike, or what they load again
            may have been written.
    """
    body = kernel.function.node.body
    loops = tuple(s for s in body.body if isinstance(s, cst.For))
    everywhere = [*descendants(body, cst.For), *descendants(body, cst.While)]
    if len(loops) < 2 or len(everywhere) > len(loops):
        there = "loops within others" if len(everywhere) > len(loops) else f"{len(loops)}"
        raise NotApplicable(
            f"looks for two or more loops that pass over one row, and {kernel.name} has {there}"
        )
    steps = {_step(source, kernel, loop) for loop in loops}
    if len(steps) > 1:
        raise NotApplicable(f"the loops of {kernel.name} step through different rows")
    ((length, tile),) = steps
    flow = Flow(CUTILE, source, kernel, tile)
    if (refusal := needed_size(flow)) is not None:
        raise NotApplicable(f"{tile} of {kernel.name}: {refusal}")
    if not flow.guarded():
        raise NotApplicable(f"{kernel.name} loads without padding, so {tile} cannot grow")
    if (node := padding_that_counts(flow)) is not None:
        line = source.line(node)
        raise NotApplicable(f"line {line} counts what pads the last tile, so {tile} cannot grow")
    if (load := element_for_a_block(flow)) is not None:
        line = source.line(load)
        raise NotApplicable(f"line {line} loads one element for a tile, so {tile} cannot grow")
    return RowPasses(kernel, tile, length, loops, _loaded_again(source, kernel, loops))


def check_ends(source: Source, passes: RowPasses, launch: Launch) -> None:
    """Hold what is passed over, and what is stored, to end where the loops do.

    The last of several tiles ends soon behind the row, one that holds all of it may reach further:
    into what else an array has there.

    Raises:
        NotApplicable: an array may go on behind the row.
    """
    kernel, row = passes.kernel, passes.length
    sizes, given = Sizes(source, kernel, launch), launch.arguments
    length = given.get(row.parameter)
    if length is None:
        raise NotApplicable(
            f"the launch at line {source.line(launch.node)} hides `{row.parameter}`"
        )
    whole = sizes.size(length) if row.axis is None else sizes.extent(length, row.axis)
    for loop in passes.loops:
        again = [call for _, call, text in loads_in(source, loop) if text in passes.again]
        for call in (*again, *CUTILE.find(source, loop.body, CUTILE.stores)):
            array, place = _along_row(source, loop, call, passes.tile)
            there = given.get(array)
            if there is None or sizes.extent(there, place) != whole:
                raise NotApplicable(
                    f"line {source.line(call)} of {kernel.name} goes along axis {place} of "
                    f"`{array}`, which need not end with the row"
                )


def _along_row(source: Source, loop: cst.For, call: cst.Call, tile: str) -> tuple[str, int]:
    """The array of an access, and along which of its axes it goes with the loop."""
    array, index = argument(call, 0, "array"), argument(call, 1, "index")
    index = index if index is not None else argument(call, 1, "indices")
    listed = value_of(source, index) if index is not None else None
    elements = listed.elements if isinstance(listed, cst.Tuple) else ()
    along = [n for n, e in enumerate(elements) if _goes_along(source, loop, e.value)]
    line = source.line(call)
    if not isinstance(array, cst.Name) or len(along) != 1:
        raise NotApplicable(f"line {line} does not go along one axis of a parameter")
    (place,) = along
    if not _is_plain(source, loop, elements[place].value, tile):
        code = source.code(elements[place].value)
        raise NotApplicable(
            f"line {line} goes along `{code}`, and not through a row from its start"
        )
    return array.value, place


def _goes_along(source: Source, loop: cst.For, expression: cst.BaseExpression) -> bool:
    """Whether an index is computed from a loop's counter."""
    counter = cst.ensure_type(loop.target, cst.Name).value
    pending, seen = [expression], set[cst.CSTNode]()
    for node in pending:
        for name in descendants(node, cst.Name):
            if name.value == counter:
                return True
            behind = value_of(source, name)
            if behind is not name and behind not in seen:
                seen.add(behind)
                pending.append(behind)
    return False


def _is_plain(source: Source, loop: cst.For, index: cst.BaseExpression, tile: str) -> bool:
    """Whether an index is the counter, or the elements of its tile and nothing besides."""
    counter = cst.ensure_type(loop.target, cst.Name).value

    def counts(node: cst.BaseExpression) -> bool:
        match node:
            case cst.Name():
                return node.value == counter
            case cst.BinaryOperation(operator=cst.Multiply(), left=left, right=right):
                return {source.code(left), source.code(right)} == {counter, tile}
        return False

    match value_of(source, index):
        case cst.BinaryOperation(operator=cst.Add(), left=left, right=right):
            sides = [value_of(source, left), value_of(source, right)]
            iotas = [s for s in sides if isinstance(s, cst.Call)]
            named = [source.name(call.func) in CUTILE.iotas for call in iotas]
            others = [s for s in sides if s not in iotas]
            sized = [source.code(call.args[0].value) == tile for call in iotas if call.args]
            return named == sized == [True] and len(others) == 1 and counts(others[0])
        case behind:
            return counts(behind) and isinstance(behind, cst.Name)


def steps_of(loop: cst.For) -> cst.BaseExpression:
    """The end of a loop's range."""
    arguments = cst.ensure_type(loop.iter, cst.Call).args
    return arguments[min(1, len(arguments) - 1)].value


def at_zero(
    source: Source,
    loop: cst.For,
    node: Node,
    others: Mapping[cst.CSTNode, cst.CSTNode] = MappingProxyType({}),
) -> Node:
    """A part of a loop that has one step, with 0 for its counter, and others for some nodes."""
    counter = cst.ensure_type(loop.target, cst.Name)
    uses = {use for a in source.assignments(counter) for use in source.uses(a)}
    return edited(node, in_place_of(dict.fromkeys(uses, cst.Integer("0")) | dict(others)))


def in_place_of(others: Mapping[cst.CSTNode, cst.CSTNode]) -> Edits:
    """The edits that put other nodes in the place of some."""

    def giving(other: cst.CSTNode) -> Callable[[cst.CSTNode], cst.CSTNode]:
        return lambda _: other

    return {node: giving(other) for node, other in others.items()}


def loads_in(source: Source, loop: cst.For) -> Iterator[tuple[cst.BaseStatement, cst.Call, str]]:
    """Each load that a pass makes in any case, with its statement and its text at 0."""
    for statement in loop.body.body:
        if isinstance(statement, cst.SimpleStatementLine):
            for call in CUTILE.find(source, statement, CUTILE.loads):
                yield statement, call, source.code(at_zero(source, loop, call))


def _step(source: Source, kernel: Kernel, loop: cst.For) -> tuple[RowLength, str]:
    """What a loop steps through, and by which constant.

    `range(ct.num_tiles(x, 1, (1, T)))`, `range(ct.cdiv(n, T))` and `range(0, n, T)` step alike.
    """
    line, body = source.line(loop), loop.body
    ends = any(descendants(body, cst.Break)) or any(descendants(body, cst.Continue))
    call = loop.iter
    if (
        not isinstance(call, cst.Call)
        or source.name(call.func) != RANGE
        or not isinstance(loop.target, cst.Name)
        or loop.orelse is not None
        or ends
        or (len(call.args) > 1 and source.code(call.args[0].value) != "0")
    ):
        raise NotApplicable(f"the loop at line {line} is no plain pass from the beginning")
    extent: _Extent
    tile: cst.BaseExpression | None
    if len(call.args) > 2:
        extent, tile = call.args[1].value, call.args[2].value
    else:
        extent, tile = _counted(source, source.resolve(steps_of(loop)))
    length = _length(source, kernel, extent)
    if length is None or not isinstance(tile, cst.Name) or tile.value not in kernel.constants:
        raise NotApplicable(
            f"the kernel does not show that the loop at line {line} steps through a row by a "
            "constant of the launch"
        )
    return length, tile.value


_Extent = cst.BaseExpression | tuple[cst.Name, int] | None


def _counted(
    source: Source, steps: cst.BaseExpression
) -> tuple[_Extent, cst.BaseExpression | None]:
    """What a number of steps divides, and by what."""
    match steps:
        case cst.Call() if source.name(steps.func) == f"{CT}cdiv":
            return argument(steps, 0, "x"), argument(steps, 1, "y")
        case cst.Call() if source.name(steps.func) == f"{CT}num_tiles":
            array, axis = argument(steps, 0, "array"), argument(steps, 1, "axis")
            shape = argument(steps, 2, "shape")
            match array, axis, shape:
                case cst.Name(), cst.Integer(), cst.Tuple(elements=elements):
                    place = axis.evaluated_value
                    if place < len(elements):
                        return (array, place), elements[place].value
        case cst.BinaryOperation(operator=cst.FloorDivide(), left=above, right=cst.Name() as tile):
            if isinstance(above, cst.BinaryOperation) and isinstance(
                above.left, cst.BinaryOperation
            ):
                written = source.code(above).replace(" ", "").strip("()")
                extent = above.left.left
                if written == f"{source.code(extent)}+{tile.value}-1".replace(" ", ""):
                    return extent, tile
    return None, None


def _length(source: Source, kernel: Kernel, extent: _Extent) -> RowLength | None:
    parameters = {parameter.name.value for parameter in kernel.function.parameters}
    if isinstance(extent, tuple):
        array, axis = extent
        return RowLength(array.value, axis) if array.value in parameters else None
    match source.resolve(extent) if extent is not None else None:
        case cst.Name(value=name) if name in parameters:
            return RowLength(name, None)
        case cst.Subscript(
            value=cst.Attribute(value=cst.Name(value=name), attr=cst.Name(value="shape")),
            slice=[cst.SubscriptElement(slice=cst.Index(value=cst.Integer() as place))],
        ) if name in parameters:
            return RowLength(name, place.evaluated_value)
    return None


def _loaded_again(source: Source, kernel: Kernel, loops: Sequence[cst.For]) -> tuple[str, ...]:
    """The loads that two passes or more make alike, in order."""
    stable = _Stable(source, kernel, loops)
    passes: dict[str, set[cst.For]] = {}
    arrays: dict[str, str] = {}
    for loop in loops:
        for _, call, text in loads_in(source, loop):
            names = (n for n in descendants(call, cst.Name) if not is_no_variable(source, n))
            if all(map(stable, names)):
                passes.setdefault(text, set()).add(loop)
                array = argument(call, 0, "array")
                arrays[text] = source.code(array) if array is not None else ""
    again = tuple(text for text, where in passes.items() if len(where) > 1)
    if not again:
        raise NotApplicable(f"no two passes of {kernel.name} load the same tile")
    _check_unwritten(source, kernel, {arrays[text] for text in again})
    return again


def _check_unwritten(source: Source, kernel: Kernel, arrays: set[str]) -> None:
    """Refuse a kernel that stores into what it loads again, by whatever name the launch gives."""

    def given(name: str) -> set[str]:
        return {source.code(x.arguments[name]) for x in kernel.launches if name in x.arguments}

    loaded = {text for name in arrays for text in given(name)}
    for helper in CUTILE.reached(source, kernel)[1:]:
        for call in CUTILE.find(source, helper.node.body, CUTILE.stores):
            raise NotApplicable(f"line {source.line(call)} stores for {kernel.name}")
    for call in CUTILE.find(source, kernel.function.node.body, CUTILE.stores):
        array = argument(call, 0, "array")
        written = given(source.code(array)) if array is not None else set()
        if not written or not loaded or written & loaded:
            raise NotApplicable(f"line {source.line(call)} may write what is loaded again")


class _Stable:
    """Whether a name means the same in each pass."""

    def __init__(self, source: Source, kernel: Kernel, loops: Sequence[cst.For]) -> None:
        self._counters = {cst.ensure_type(loop.target, cst.Name).value for loop in loops}
        self._augmented = {
            name.value
            for node in descendants(kernel.function.node.body, cst.AugAssign)
            for name in descendants(node.target, cst.Name)
        }
        self._texts: dict[str, set[str]] = {}
        """Name -> what is assigned to it, with 0 for the counters."""
        self._parts: dict[str, list[cst.Name]] = {}
        for target, value in assigned(kernel.function.node.body):
            loop = next((a for a in source.ancestors(value) if a in loops), None)
            for name in descendants(target, cst.Name):
                text = source.code(
                    at_zero(source, loop, value) if isinstance(loop, cst.For) else value
                )
                own = text if name is target else f"{text} in part"
                self._texts.setdefault(name.value, set()).add(own)
                read = [n for n in descendants(value, cst.Name) if not is_no_variable(source, n)]
                self._parts.setdefault(name.value, []).extend(read)
        self._asked: set[str] = set()

    def __call__(self, name: cst.Name) -> bool:
        """Ask of it, and of what it is computed from."""
        value = name.value
        if value in self._counters or value not in self._texts:
            return True
        if value in self._asked or value in self._augmented or len(self._texts[value]) > 1:
            return False
        self._asked.add(value)
        try:
            return all(map(self, self._parts[value]))
        finally:
            self._asked.remove(value)
