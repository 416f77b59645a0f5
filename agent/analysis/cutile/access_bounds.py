"""Upper bounds of a cuTile kernel's indices, as conditions that the host checks at each launch.

A block's index is below the grid's extent and a loop's variable below where the loop stops, so that
the host can say, without the kernel, that no index of an access leaves its array.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.index_runs import NotRegular
from agent.analysis.common.purity import is_pure
from agent.analysis.common.reaching_definitions import definition, value_of
from agent.analysis.common.sizes import Size
from agent.analysis.cutile.accesses import access_of
from agent.analysis.cutile.blocks import BID, NUM_BLOCKS, grid_of
from agent.analysis.cutile.compiled_in import NotTold, branches_around, is_compiled
from agent.analysis.cutile.dialect import CT, grid_axis
from agent.analysis.cutile.extents import Sizes
from agent.analysis.cutile.spelling import tile_module
from agent.analysis.cutile.tile_shapes import edges_of
from agent.syntax import Source, argument, keyword, positional

LOAD, STORE, GATHER, SCATTER = (f"{CT}{name}" for name in ("load", "store", "gather", "scatter"))
CDIVS = (f"{CT}cdiv", "triton.cdiv")
CEILING = "math.ceil"
DIVISIBLE = f"{CT}assume_divisible_by"
_DEEP = 20


class NotBounded(Exception):
    """The host cannot tell how far an access reaches; the message says why."""


@dataclass(frozen=True)
class CoveredAxis:
    """What an access covers along one axis of its array, in the kernel's expressions."""

    tiles: tuple[cst.BaseExpression, ...]
    """Their sum is the index, counted in tiles."""
    edge: cst.BaseExpression | None
    """The tile's; None for a single element."""
    offsets: tuple[cst.BaseExpression, ...] = ()
    """Their sum is added to the index, counted in elements."""


def covered(
    source: Source, kernel: Kernel, call: cst.Call
) -> tuple[cst.Name, tuple[CoveredAxis, ...]]:
    """The array that an access touches, and what it covers of it.

    Raises:
        NotBounded: the indices are not of a form whose greatest value could be told.
    """
    if source.name(call.func) in (GATHER, SCATTER):
        try:
            access = access_of(source, kernel, call)
        except NotRegular as reason:
            raise NotBounded(str(reason)) from None
        return access.array, tuple(
            CoveredAxis(a.tiles, a.run.length, a.offsets) for a in access.axes
        )
    array = argument(call, 0, "array")
    names = {p.name.value for p in kernel.function.parameters}
    if not isinstance(array, cst.Name) or array.value not in names or keyword(call, "order"):
        raise NotBounded("its array is no parameter of the kernel, or its axes are reordered")
    indices = _listed(source, argument(call, 1, "index"))
    if source.name(call.func) == LOAD:
        edges = _listed(source, argument(call, 2, "shape"))
    else:
        tile = argument(call, 2, "tile")
        edges = (edges_of(source, tile) if tile is not None else None) or ()
    if not indices or len(indices) != len(edges):
        raise NotBounded("its index or the shape of its tile is not written out")
    return array, tuple(CoveredAxis((i,), e) for i, e in zip(indices, edges, strict=True))


def _listed(
    source: Source, expression: cst.BaseExpression | None
) -> tuple[cst.BaseExpression, ...]:
    if expression is None:
        return ()
    behind = value_of(source, expression)
    if isinstance(behind, cst.Tuple | cst.List):
        return tuple(element.value for element in behind.elements)
    return (expression,)


class Reach:
    """What the host code at one launch can say of the indices in a kernel."""

    def __init__(self, source: Source, kernel: Kernel, launch: Launch) -> None:
        """Raises `NotApplicable` when the launch does not show its grid."""
        self._source = source
        self._kernel = kernel
        self._launch = launch
        self._grid = grid_of(source, launch)
        self._sizes = Sizes(source, kernel, launch)
        self._extents: dict[Size, str] = {}
        """What the host calls an extent: that of the first array that has it."""

    def leaves(self, call: cst.Call, array: cst.Name, axes: Sequence[CoveredAxis]) -> Iterator[str]:
        """Conditions on the host of which one holds if an index leaves the array.

        What the kernel is compiled without may be given any array, of fewer axes or None: whether
        the access is there at all comes first in its conditions.

        Raises:
            NotBounded: the greatest index is not known, or whether the access is there.
        """
        branches = branches_around(self._source, call)
        try:
            tests = [is_compiled(self._source, self._kernel, self._launch, b) for b in branches]
        except NotTold as reason:
            raise NotBounded(str(reason)) from None
        guard = "".join(f"{test} and " for test in reversed(tests) if test)
        for condition in self._conditions(array, axes):
            yield f"({guard}{condition})" if guard else condition

    def _conditions(self, array: cst.Name, axes: Sequence[CoveredAxis]) -> Iterator[str]:
        if not self._is_parameter(array):
            raise NotBounded(f"`{array.value}` is no longer what the launch gives for it")
        owner = self._given(array.value)
        for place, axis in enumerate(axes):
            edge = "1" if axis.edge is None else self._edge(axis.edge)
            end = _times(self._end(axis.tiles), edge) if axis.tiles else edge
            for offset in axis.offsets:
                end = _plus(end, self._exact(offset))
            yield from (f"{scalar} < 0" for scalar in self._signed((*axis.tiles, *axis.offsets)))
            if not self._is_inside(array, place, axis, edge):
                size = self._sizes.extent(array, place)
                extent = self._extents.setdefault(size, f"{owner}.shape[{place}]")
                if end != extent:
                    yield f"{end} > {extent}"

    def _edge(self, edge: cst.BaseExpression) -> str:
        """A tile's edge, under a name: a number in the launch may change without its copy."""
        behind = value_of(self._source, edge)
        known = self._exact(edge)
        if known.isdecimal() and isinstance(behind, cst.Name):
            raise NotBounded(f"the launch gives {behind.value} as a number, {known}")
        return known

    def _is_inside(self, array: cst.Name, place: int, axis: CoveredAxis, edge: str) -> bool:
        """Whether the code says that each element along the axis has its block, or its round."""
        if len(axis.tiles) != 1 or axis.offsets or edge != "1":
            return False
        index = value_of(self._source, axis.tiles[0])
        number = self._block(index)
        end = self._sizes.grid(number) if number is not None else None
        if isinstance(index, cst.Name):
            found = definition(self._source, index.value, index)
            if found is not None and isinstance(found.node, cst.For):
                end = self._sizes.size(self._bound(found.node))
        return end is not None and self._sizes.at_most(end, self._sizes.extent(array, place))

    # --- one more than the greatest value -------------------------------------------------------

    def _end(self, terms: Sequence[cst.BaseExpression]) -> str:
        """One more than the greatest sum of some terms."""
        ends = [self._end_of(term, 0) for term in terms]
        whole = ends[0]
        for end in ends[1:]:
            whole = _plus(whole, _minus_one(end))
        return whole

    def _end_of(self, expression: cst.BaseExpression, deep: int) -> str:
        expression = value_of(self._source, expression)
        if deep > _DEEP:
            raise NotBounded("its index is too deep to follow")
        if (axis := self._block(expression)) is not None:
            return self._extent_of_grid(axis)
        if isinstance(expression, cst.Name):
            found = definition(self._source, expression.value, expression)
            if found is not None and isinstance(found.node, cst.For):
                return self._stop(found.node)
        if isinstance(expression, cst.BinaryOperation):
            left, right = expression.left, expression.right
            if isinstance(expression.operator, cst.Add):
                ends = self._end_of(left, deep + 1), self._end_of(right, deep + 1)
                return _plus(ends[0], _minus_one(ends[1]))
            if isinstance(expression.operator, cst.Multiply):
                both = [_minus_one(self._end_of(side, deep + 1)) for side in (left, right)]
                return _plus(_times(*both), "1")
        return _plus(self._exact(expression), "1")

    def _extent_of_grid(self, axis: int) -> str:
        if axis >= len(self._grid):
            return "1"
        extent = self._grid[axis]
        if not is_pure(self._source, extent, (*CDIVS, CEILING)):
            raise NotBounded(f"the grid's extent `{self._source.code(extent)}` is not plain")
        return self._source.code(extent)

    def _stop(self, loop: cst.For) -> str:
        """What a loop's variable stays below, for the host."""
        return self._exact(self._bound(loop))

    def _bound(self, loop: cst.For) -> cst.BaseExpression:
        """What a loop's variable stays below. Its start is an index too, its step goes upwards."""
        call = loop.iter
        if not isinstance(call, cst.Call) or self._source.name(call.func) != "builtins.range":
            raise NotBounded("a loop is not over a range")
        given = positional(call)
        if len(given) == 3:
            step = value_of(self._source, given[2])
            upwards = isinstance(step, cst.Integer) or (
                isinstance(step, cst.Call) and self._source.name(step.func) == NUM_BLOCKS
            )
            if not upwards:
                raise NotBounded("a loop's step may go downwards")
        if len(given) > 1 and self._block(value_of(self._source, given[0])) is None:
            self._end_of(given[0], 0)
        return given[0] if len(given) == 1 else given[1]

    def _block(self, expression: cst.BaseExpression) -> int | None:
        """The axis of `ct.bid(axis)`."""
        if isinstance(expression, cst.Call) and self._source.name(expression.func) == BID:
            return grid_axis(expression)
        return None

    # --- values that the host knows -------------------------------------------------------------

    def _exact(self, expression: cst.BaseExpression, deep: int = 0) -> str:
        """The host's expression for a value that is the same in every block."""
        if self._is_shared(expression):
            return self._source.code(expression)
        expression = value_of(self._source, expression)
        if deep > _DEEP:
            raise NotBounded("its index is too deep to follow")
        match expression:
            case cst.Integer():
                return self._source.code(expression)
            case cst.Name() if self._is_parameter(expression):
                return self._given(expression.value)
            case cst.Subscript(value=cst.Attribute(value=cst.Name() as array, attr=attribute)):
                if attribute.value == "shape" and self._is_parameter(array):
                    axis = self._source.code(expression.slice[0])
                    return f"{self._given(array.value)}.shape[{axis}]"
            case cst.BinaryOperation(operator=cst.Add() | cst.Multiply()):
                sides = [self._exact(s, deep + 1) for s in (expression.left, expression.right)]
                join = _plus if isinstance(expression.operator, cst.Add) else _times
                return join(*sides)
            case cst.Call():
                return self._counted(expression, deep)
        raise NotBounded(f"`{self._source.code(expression)}` is not known before the launch")

    def _counted(self, call: cst.Call, deep: int) -> str:
        called, given = self._source.name(call.func), positional(call)
        if called == DIVISIBLE and given:
            return self._exact(given[0], deep + 1)
        if called == f"{CT}cdiv" and len(given) == 2:
            return self._cdiv(self._exact(given[0], deep + 1), self._exact(given[1], deep + 1))
        if called == f"{CT}num_tiles":
            array, axis = argument(call, 0, "array"), argument(call, 1, "axis")
            edges = _listed(self._source, argument(call, 2, "shape"))
            if isinstance(array, cst.Name) and isinstance(axis, cst.Integer):
                place = axis.evaluated_value
                if place < len(edges) and self._is_parameter(array):
                    extent = f"{self._given(array.value)}.shape[{place}]"
                    return self._cdiv(extent, self._exact(edges[place], deep + 1))
        raise NotBounded(f"`{self._source.code(call)}` is not known before the launch")

    def _cdiv(self, extent: str, edge: str) -> str:
        return extent if edge == "1" else f"{tile_module(self._source)}.cdiv({extent}, {edge})"

    def _signed(self, expressions: Sequence[cst.BaseExpression]) -> Iterator[str]:
        """Scalars that the host gives for parts of an index, whose sign nothing tells."""
        for expression in expressions:
            behind = value_of(self._source, expression)
            match behind:
                case cst.Name() if self._is_parameter(behind):
                    given = self._given(behind.value)
                    if not given.isdecimal():
                        yield given
                case cst.Name():
                    found = definition(self._source, behind.value, behind)
                    if found is not None and isinstance(found.node, cst.For):
                        bounds = found.node.iter
                        if isinstance(bounds, cst.Call):
                            yield from self._signed(positional(bounds)[:-1][:1])
                case cst.BinaryOperation():
                    yield from self._signed((behind.left, behind.right))
                case cst.Call() if self._source.name(behind.func) in (DIVISIBLE, f"{CT}cdiv"):
                    yield from self._signed(positional(behind)[:1])

    def _is_shared(self, expression: cst.BaseExpression) -> bool:
        """Whether it is a constant of the module that the launching function sees too."""
        if not isinstance(expression, cst.Name):
            return False
        found = definition(self._source, expression.value, expression)
        return (
            found is not None
            and isinstance(found.node, cst.Assign)
            and self._source.enclosing(found.node) is None
            and found == definition(self._source, expression.value, self._launch.node)
        )

    def _is_parameter(self, name: cst.Name) -> bool:
        found = definition(self._source, name.value, name)
        return found is not None and isinstance(found.node, cst.Param)

    def _given(self, name: str) -> str:
        given = self._launch.arguments.get(name)
        if given is None or not is_pure(self._source, given):
            raise NotBounded(f"what the launch gives for {name} is not to be computed twice")
        return self._source.code(given)


# --- the text of expressions --------------------------------------------------------------------


def _operand(text: str, *, of_sum: bool = False) -> str:
    """An expression as it can stand beside `*`, or beside `+`."""
    parsed = cst.parse_expression(text)
    if not isinstance(parsed, cst.BinaryOperation | cst.UnaryOperation) or parsed.lpar:
        return text
    binds = isinstance(parsed.operator, cst.Add | cst.Subtract | cst.Multiply | cst.FloorDivide)
    return text if of_sum and binds else f"({text})"


def _plus(one: str, other: str) -> str:
    if one.isdecimal() and other.isdecimal():
        return str(int(one) + int(other))
    if "0" in (one, other):
        return other if one == "0" else one
    if other == "1" and one.endswith(" - 1"):
        return one.removesuffix(" - 1")
    return f"{_operand(one, of_sum=True)} + {_operand(other, of_sum=True)}"


def _minus_one(text: str) -> str:
    if text.isdecimal():
        return str(int(text) - 1)
    if text.endswith(" + 1"):
        return text.removesuffix(" + 1")
    return f"{_operand(text, of_sum=True)} - 1"


def _times(one: str, other: str) -> str:
    if "1" in (one, other):
        return other if one == "1" else one
    if "0" in (one, other):
        return "0"
    return f"{_operand(one)} * {_operand(other)}"
