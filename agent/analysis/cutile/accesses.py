"""Gathers and scatters of whole tiles: which tile, and why it lies inside the array.

`ct.gather` answers an index outside the array with its padding, element by element. `ct.load` does
that too, but only for a tile that begins inside: a tile wholly outside is undefined. So the index
of a tile has to be bounded by a loop or by the grid, and the bound by the array's extent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import libcst as cst

from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.index_runs import IndexRange, NotRegular
from agent.analysis.common.masks import conditions, upper_bound
from agent.analysis.common.reaching_definitions import definition, value_of
from agent.analysis.common.sizes import ONE, ZERO, Size, is_multiple
from agent.analysis.cutile.dialect import CT, CUTILE, grid_axis
from agent.analysis.cutile.extents import Sizes
from agent.analysis.cutile.index_ranges import holds_at, run_of, same_constant, steps
from agent.syntax import Source, argument, keyword, positional

Shape: TypeAlias = Sequence[cst.BaseExpression | None]
"""Edges of a tile; None stands for one."""

GATHER, SCATTER = f"{CT}gather", f"{CT}scatter"


@dataclass(frozen=True)
class TileAxis:
    """Where a tile lies along one axis of its array."""

    run: IndexRange
    tiles: tuple[cst.BaseExpression, ...]
    """Their sum is the index, counted in tiles."""
    offsets: tuple[cst.BaseExpression, ...]
    """Their sum is what the first tile begins at; empty for zero."""


@dataclass(frozen=True)
class Access:
    """A gather or scatter of a tile."""

    call: cst.Call
    array: cst.Name
    axes: tuple[TileAxis, ...]
    checked: bool
    """Indices outside the array are allowed."""
    mask: cst.BaseExpression | None

    @property
    def shape(self) -> Shape:
        """The shape of the gathered tile."""
        rank = max(axis.run.rank for axis in self.axes)
        by_place = {a.run.place: a.run.length for a in self.axes if a.run.length is not None}
        return tuple(by_place.get(place) for place in reversed(range(rank)))


def access_of(source: Source, kernel: Kernel, call: cst.Call) -> Access:
    """The tile that a gather or scatter touches. Raises `NotRegular` when it is none."""
    array, indices = argument(call, 0, "array"), argument(call, 1, "indices")
    names = {p.name.value for p in kernel.function.parameters}
    if not isinstance(array, cst.Name) or array.value not in names or indices is None:
        raise NotRegular("its array is no parameter of the kernel")
    listed = value_of(source, indices)
    several = [e.value for e in listed.elements] if isinstance(listed, cst.Tuple) else [indices]
    axes = tuple(axis_of(source, run_of(source, index)) for index in several)
    lengths = [axis.run.length for axis in axes if axis.run.length is not None]
    places = [axis.run.place for axis in axes if axis.run.length is not None]
    if all(source.code(length) == "1" for length in lengths):
        raise NotRegular("it touches a single element")
    if any(one <= other for one, other in pairwise(places)):
        raise NotRegular("its tile is transposed, or two of its indices run together")
    unchecked = keyword(call, "check_bounds")
    checked = unchecked is None or source.code(unchecked) != "False"
    access = Access(call, array, axes, checked, keyword(call, "mask"))
    for expression in _emitted(access):
        if not holds_at(source, expression, call):
            raise NotRegular(f"`{source.code(expression)}` has another value there")
    return access


def checks_bounds(source: Source, call: cst.Call) -> bool:
    """Whether a load or store surely checks them: it does unless it is told anything else."""
    given = keyword(call, "check_bounds")
    return given is None or source.code(given) == "True"


def axis_of(source: Source, run: IndexRange) -> TileAxis:
    """Where the tile of a run of indices lies."""
    if run.length is None:
        return TileAxis(run, run.starts, ())
    tiles, offsets = [], []
    for start in run.starts:
        step = steps(source, start, run.length)
        if step is None:
            offsets.append(start)
        elif not _is_zero(step):
            tiles.append(step)
    return TileAxis(run, tuple(tiles), tuple(offsets))


def _emitted(access: Access) -> Iterator[cst.BaseExpression]:
    for axis in access.axes:
        yield from axis.tiles
        yield from axis.offsets
        if axis.run.length is not None:
            yield axis.run.length


# --- why a tile is inside -----------------------------------------------------------------------


class Bounds:
    """What the code around a kernel's accesses says of the arrays' extents."""

    def __init__(
        self, source: Source, kernel: Kernel, accessed: Iterable[tuple[cst.Name, int]]
    ) -> None:
        """Read the launches that are in plain sight.

        Args:
            source: the file.
            kernel: what accesses the arrays.
            accessed: its arrays, each with its dimensions.
        """
        self._source = source
        listed = [*accessed]
        self._arrays = {array.value: array for array, _ in listed}
        ranks = {array.value: rank for array, rank in listed}
        seen = _launches_in_plain_sight(source, kernel)
        self._sizes = [Sizes(source, kernel, launch, ranks) for launch in seen]

    def check(self, access: Access) -> None:
        """Raise `NotRegular` unless every tile of the access begins inside its array."""
        masked = self._masked(access)
        for number, axis in enumerate(access.axes):
            if access.checked or number in masked:
                self.check_axis(access.array, number, axis)

    def check_axis(self, array: cst.Name, number: int, axis: TileAxis) -> None:
        """Raise `NotRegular` unless tiles begin inside an array along one of its axes."""
        for sizes in self._sizes:
            self._check_axis(sizes, array, number, axis)

    def is_multiple(self, whole: cst.BaseExpression, part: cst.BaseExpression) -> bool:
        """Whether one size is a multiple of another at every launch, or is asserted to be."""
        return all(
            is_multiple(sizes.size(whole), sizes.size(part))
            or sizes.at_most(Size("%", (sizes.size(whole), sizes.size(part))), ZERO)
            for sizes in self._sizes
        )

    def _check_axis(self, sizes: Sizes, array: cst.Name, number: int, axis: TileAxis) -> None:
        whole = sizes.extent(array, number)
        start = ZERO
        for offset in axis.offsets:
            start = sizes.size(offset) if start == ZERO else Size("+", (start, sizes.size(offset)))
        inside = sizes.rest(whole, start)
        if inside is None:
            code = " + ".join(self._source.code(o) for o in axis.offsets)
            raise NotRegular(f"nothing says that `{code}` lies inside {array.value}")
        if not axis.tiles:
            return
        if len(axis.tiles) > 1:
            raise NotRegular("its tile index is a sum")
        covered = self._covered(sizes, axis)
        if not (sizes.at_most(covered, inside) or self._is_taken_alike(sizes, covered, whole)):
            raise NotRegular(
                f"nothing says that tile `{self._source.code(axis.tiles[0])}` begins inside axis "
                f"{number} of {array.value}"
            )

    def _covered(self, sizes: Sizes, axis: TileAxis) -> Size:
        """The elements that the tiles up to the largest index cover, less the last one's excess."""
        count = self._count(sizes, axis.tiles[0])
        if axis.run.length is None or count in (ZERO, ONE):
            return count
        if count.operation in ("cdiv", "//") and count.parts[1] == sizes.size(axis.run.length):
            return count.parts[0]
        raise NotRegular(
            f"`{self._source.code(axis.tiles[0])}` is not bounded by a count of such tiles"
        )

    def _count(self, sizes: Sizes, index: cst.BaseExpression) -> Size:
        """What a tile index stays below."""
        behind = value_of(self._source, index)
        if isinstance(behind, cst.Integer):
            return Size(str(behind.evaluated_value + 1))
        if isinstance(behind, cst.Call) and self._source.name(behind.func) == f"{CT}bid":
            axis = grid_axis(behind)
            count = sizes.grid(axis) if axis is not None else None
            if count is not None:
                return count
            raise NotRegular("it depends on a grid that this file does not show")
        if isinstance(behind, cst.Name):
            found = definition(self._source, behind.value, behind)
            if found is not None and isinstance(found.node, cst.For):
                return sizes.size(self._stop(found.node))
        raise NotRegular(f"`{self._source.code(index)}` is neither a block's index nor a loop's")

    def _stop(self, loop: cst.For) -> cst.BaseExpression:
        """Where a loop ends that counts up from zero or more."""
        call = loop.iter
        if isinstance(call, cst.Call) and self._source.name(call.func) in CUTILE.ranges:
            values = positional(call)
            if len(values) == 1:
                return values[0]
            if values and all(map(self._is_natural, (values[0], *values[2:]))):
                return values[1]
        raise NotRegular(f"the loop at line {self._source.line(loop)} may begin below zero")

    def _is_natural(self, expression: cst.BaseExpression) -> bool:
        behind = value_of(self._source, expression)
        if isinstance(behind, cst.Call):
            return self._source.name(behind.func) in (f"{CT}bid", f"{CT}num_blocks")
        return isinstance(behind, cst.Integer)

    def _is_taken_alike(self, sizes: Sizes, covered: Size, whole: Size) -> bool:
        """Whether an extent that the code does not tell goes with another array's that it does.

        In `add(x, y)` the grid comes from `x`, and nothing is said of `y`, which is as long.
        """
        if whole.parts or not whole.operation.endswith("]"):
            return False
        base = whole.operation.rpartition(".shape")[0]
        return not covered.mentions(base + ".") and covered in self._extents(sizes)

    def _extents(self, sizes: Sizes) -> set[Size]:
        return {
            sizes.extent(self._arrays[name], axis)
            for name, rank in sizes.ranks.items()
            for axis in range(rank)
        }

    def _masked(self, access: Access) -> set[int]:
        """The axes that a mask bounds by the array's extent, which a load does anyway.

        Raises `NotRegular` for any other mask.
        """
        masked = set()
        for left, right in _bounds_of_mask(self._source, access.mask):
            run = run_of(self._source, left)
            axes = [i for i, a in enumerate(access.axes) if a.run.starts == run.starts
                    and a.run.length is run.length]  # fmt: skip
            if len(axes) != 1:
                raise NotRegular("its mask bounds something else than its indices")
            for sizes in self._sizes:
                if sizes.size(right) != sizes.extent(access.array, axes[0]):
                    raise NotRegular(
                        f"its mask ends at `{self._source.code(right)}`, and nothing says that "
                        f"this is the extent of axis {axes[0]} of {access.array.value}"
                    )
            masked.add(axes[0])
        return masked


def _bounds_of_mask(
    source: Source, mask: cst.BaseExpression | None
) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """`offsets` and `n` of each `offsets < n` that a mask consists of."""
    for condition in conditions(source, mask):
        if isinstance(condition, cst.Name) and condition.value == "True":
            continue
        if (bound := upper_bound(condition)) is None:
            raise NotRegular(f"its mask `{source.code(condition)}` is no bound of an index")
        yield bound


def _launches_in_plain_sight(source: Source, kernel: Kernel) -> Sequence[Launch | None]:
    """All launches of the kernel, if this file shows them whole; else one of which nothing is
    known."""
    nodes = {launch.node for launch in kernel.launches}
    seen = all(
        any(around in nodes for around in source.ancestors(name))
        for name in source.mentions(kernel.function)
    )
    if not kernel.launches or not seen or not all(x.complete for x in kernel.launches):
        return (None,)
    return kernel.launches


def _is_zero(expression: cst.BaseExpression) -> bool:
    return isinstance(expression, cst.Integer) and expression.evaluated_value == 0


def same_shape(source: Source, one: Shape, other: Shape) -> bool:
    """Whether two tile shapes are the same."""
    return len(one) == len(other) and all(
        a is b or (a is not None and b is not None and same_constant(source, a, b))
        for a, b in zip(one, other, strict=True)
    )
