"""Tiles that meet along one dimension though they have different extents.

`rows + cols[None, :]` lays rows along the last dimension, beside the columns. Triton takes that
where one of both has one element, so that a size of 1 there is no matter of choice; and where both
sizes are the same in each launch, as of `tl.sum(tile, 0)` that is added to a tile of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import libcst as cst

from agent.analysis.common.dialect import Dialect, Kernel
from agent.analysis.common.possible_definitions import Binder, possible_definitions
from agent.analysis.common.reaching_definitions import Ambiguous, value_of
from agent.syntax import Source, Untraceable, argument, descendants, keyword, names_in

TL = "triton.language."
Shape: TypeAlias = tuple[str | None, ...]
"""The extents of a tile as text, the first dimension first; None for one that is not known."""
SAME = frozenset({f"{TL}cast", f"{TL}load", f"{TL}store"})
"""Beside arithmetic: what lays the tiles that it is given beside each other."""
HINTS = frozenset(f"{TL}{name}" for name in ("max_constancy", "max_contiguous", "multiple_of"))
SIZED = frozenset(f"{TL}{name}" for name in ("broadcast_to", "full", "reshape", "view", "zeros"))
REDUCED = frozenset(f"{TL}{name}" for name in ("argmax", "argmin", "max", "min", "sum", "xor_sum"))


def needs_one(
    dialect: Dialect, source: Source, kernel: Kernel, sizes: frozenset[str]
) -> tuple[cst.CSTNode, str] | None:
    """Where a tile of a constant's size meets another size along one dimension, and which.

    None where it does not, every launch has 1 for the other one, or both are of the constant.

    Args:
        dialect: Triton.
        source: the file.
        kernel: one of its kernels.
        sizes: the constant, and the names of its multiples.
    """
    for node, one, other in _met(dialect, source, kernel):
        for own, met in ((one, other), (other, one)):
            alone = _names(own) & sizes and not _names(met) & sizes
            if alone and not _is_one(source, kernel, met):
                return node, met
    return None


def shape_of(dialect: Dialect, source: Source, node: cst.BaseExpression) -> Shape | None:
    """The extents of what a kernel's expression is; None where not even their number is known."""
    return _Shapes(dialect, source).of(node)


def _met(
    dialect: Dialect, source: Source, kernel: Kernel
) -> Iterator[tuple[cst.CSTNode, str, str]]:
    """Each operation whose tiles have different extents along a dimension, and those."""
    shapes = _Shapes(dialect, source)
    body = kernel.function.node.body
    for node in _operations(body):
        shapes.of(node)
    for added in descendants(body, cst.AugAssign):
        shapes.of_sum(added)
    yield from shapes.met


def _operations(body: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    for kind in (cst.BinaryOperation, cst.Comparison, cst.Call):
        yield from descendants(body, kind)


class _Shapes:
    """The shapes of a kernel's expressions, as far as they are to be seen."""

    def __init__(self, dialect: Dialect, source: Source) -> None:
        self._dialect, self._source = dialect, source
        self._known: dict[cst.CSTNode, Shape | None] = {}
        self.met: dict[tuple[cst.CSTNode, str, str], None] = {}

    def of(self, node: cst.BaseExpression) -> Shape | None:
        """The shape of an expression, `()` of a scalar; None where it is not known."""
        behind = value_of(self._source, node)
        if behind not in self._known:
            self._known[behind] = None  # what is made of itself is not followed
            self._known[behind] = self._of(behind)
        return self._known[behind]

    def _of(self, node: cst.BaseExpression) -> Shape | None:
        match node:
            case cst.Integer() | cst.Float():
                return ()
            case cst.Name():
                return self._named(node)
            case cst.UnaryOperation(expression=inner):
                return self.of(inner)
            case cst.BinaryOperation(left=left, operator=operator, right=right):
                if isinstance(operator, cst.MatrixMultiply):
                    return self._product(node, left, right)
                return self._beside(node, [left, right])
            case cst.Comparison(left=left, comparisons=[other]):
                return self._beside(node, [left, other.comparator])
            case cst.Subscript():
                return self._spread(node)
            case cst.Call():
                return self._called(node)
        return None

    def of_sum(self, added: cst.AugAssign) -> Shape | None:
        """The shape of what `+=` leaves its target with."""
        if added not in self._known:
            self._known[added] = None
            if isinstance(added.target, cst.Name):
                self._known[added] = self._beside(added, [added.target, added.value])
        return self._known[added]

    def _named(self, name: cst.Name) -> Shape | None:
        """Of a name that branches and rounds of a loop may assign: it has one type in all of them,
        so that one that is known tells the others."""
        try:
            found = {self._bound(each) for each in possible_definitions(self._source, name)}
        except Ambiguous:
            return None
        known = found - {None}
        return known.pop() if len(known) == 1 else None

    def _bound(self, binder: Binder) -> Shape | None:
        match binder:
            case cst.Param():
                return ()
            case cst.For(target=cst.Name(), iter=cst.Call(func=called)):
                return () if self._source.name(called) in self._dialect.ranges else None
            case cst.AugAssign():
                return self.of_sum(binder)
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Name())], value=value):
                return self.of(value)
            case cst.AnnAssign(target=cst.Name(), value=value) if value is not None:
                return self.of(value)
        return None

    def _called(self, call: cst.Call) -> Shape | None:
        called = self._dialect.called(self._source, call) or ""
        if called in self._dialect.program_ids or called in self._dialect.program_counts:
            return ()
        if called in self._dialect.iotas:
            start, end = argument(call, 0, "start"), argument(call, 1, "end")
            counts = isinstance(start, cst.Integer) and start.value == "0" and end is not None
            return (self._text(end) if counts and end is not None else None,)
        if called in (*SIZED, f"{TL}make_block_ptr"):
            given = self._dialect.shapes[called].of(call)
            listed = given.elements if isinstance(given, cst.Tuple | cst.List) else None
            return tuple(self._text(e.value) for e in listed) if listed is not None else None
        match call.func:
            case cst.Attribute(value=inner, attr=cst.Name(value="to")):
                return self.of(inner)
        if called in (*HINTS, f"{TL}advance") and call.args:
            return self.of(call.args[0].value)
        if called in REDUCED:
            return self._reduced(call)
        if called == f"{TL}dot":  # the scales of `dot_scaled` lie between its factors
            one, other = argument(call, 0, "input"), argument(call, 1, "other")
            return self._product(call, one, other)
        if called in {*SAME, *self._dialect.arithmetic, *self._dialect.cdivs}:
            tiles = {"pointer", "value", "mask", "other", "input"}
            given_to = [a.value for a in call.args if not a.keyword or a.keyword.value in tiles]
            return self._beside(call, given_to)
        return None

    def _reduced(self, call: cst.Call) -> Shape | None:
        """`tl.sum(tile, 0)`: one dimension less, or one of one element."""
        tile, axis = argument(call, 0, "input"), argument(call, 1, "axis")
        inner = self.of(tile) if tile is not None else None
        keeps, pairs = keyword(call, "keep_dims"), keyword(call, "return_indices")
        if inner is None or keeps is not None or pairs is not None or len(call.args) > 2:
            return None
        if axis is None or self._source.code(axis) == "None":
            return ()
        match value_of(self._source, axis):
            case cst.Integer(value=text) if int(text, 0) < len(inner):
                place = int(text, 0)
                return inner[:place] + inner[place + 1 :]
        return None

    def _product(
        self, node: cst.CSTNode, one: cst.BaseExpression | None, other: cst.BaseExpression | None
    ) -> Shape | None:
        """Of two matrices, whose inner dimensions lie beside each other."""
        left, right = (None if factor is None else self.of(factor) for factor in (one, other))
        if left is None or right is None or not len(left) == len(right) == 2:
            return None
        self._one(node, (left[1], right[0]))
        return left[0], right[1]

    def _spread(self, node: cst.Subscript) -> Shape | None:
        """`rows[:, None]` and `rows[None, :, None]`."""
        inner = self.of(node.value)
        slices = [element.slice for element in node.slice]
        kept = [isinstance(each, cst.Slice) for each in slices]
        if inner is None or sum(kept) != len(inner):
            return None
        whole = all(
            each.lower is each.upper is each.step is None
            if isinstance(each, cst.Slice)
            else isinstance(each, cst.Index) and self._source.code(each.value) == "None"
            for each in slices
        )
        extents = iter(inner)
        return tuple(next(extents) if keeps else "1" for keeps in kept) if whole else None

    def _beside(self, node: cst.CSTNode, parts: Sequence[cst.BaseExpression]) -> Shape | None:
        """What tiles make that are combined element by element, the last dimensions together."""
        found = [self.of(part) for part in parts]
        known = [shape for shape in found if shape is not None]
        rank = max((len(shape) for shape in known), default=0)
        filled = [("1",) * (rank - len(shape)) + shape for shape in known]
        made = tuple(self._one(node, extents) for extents in zip(*filled, strict=True))
        return made if len(known) == len(found) else None

    def _one(self, node: cst.CSTNode, extents: Sequence[str | None]) -> str | None:
        """The extent of one dimension, where several tiles have these."""
        if not (wide := tuple(dict.fromkeys(e for e in extents if e is not None and e != "1"))):
            return None if None in extents else "1"
        first, *others = wide
        self.met.update(dict.fromkeys((node, first, other) for other in others))
        return None if others else first

    def _text(self, extent: cst.BaseExpression) -> str:
        return self._source.code(value_of(self._source, extent))


def _names(extent: str) -> set[str]:
    return names_in(cst.parse_expression(extent))


def _is_one(source: Source, kernel: Kernel, extent: str) -> bool:
    """Whether every launch of a kernel has one element there."""
    given = [launch.arguments.get(extent) for launch in kernel.launches]
    if extent not in kernel.constants or not given:
        return False
    for value in given:
        try:
            literal = source.trace(value) if value is not None else None
        except Untraceable:
            return False
        if literal is None or literal.value != 1 or literal.is_default:
            return False
    return True
