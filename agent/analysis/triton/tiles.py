"""Two-dimensional tiles that Triton kernels load and store, as TMA is told of them.

`tl.load(a_ptr + rows[:, None] * stride + cols[None, :], mask=...)` touches a tile: it begins at
some row and column of an array that ends somewhere. A tensor descriptor says the same directly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.masks import UNMASKED, conditions, upper_bound
from agent.analysis.common.reaching_definitions import (
    augmentation,
    binds,
    definition,
    value_of,
)
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.index_ranges import is_scalar, is_wide, may_be_negative, span_of
from agent.analysis.triton.reduced_axes import expanded_axis
from agent.analysis.triton.spans import Span, holds_at
from agent.syntax import Source, argument, assigned, descendants, names_in

LOAD, STORE = "triton.language.load", "triton.language.store"
NO_TILE = "is no tile of two dimensions"
"""It says less than any other reason: numbers and rows are loaded beside tiles."""


@dataclass(frozen=True)
class Dimension:
    """One dimension of a tile in memory."""

    start: str
    extent: str
    """A constant."""
    stride: tuple[str, ...]
    """Its factors, parameters of the kernel and integers; none where elements lie side by side."""
    length: str
    """Where the array ends; the extent for a tile that is never masked."""
    is_wide: bool = False
    """The start may have more than 32 bits."""


@dataclass(frozen=True)
class TileAccess:
    """A load or store of a tile."""

    call: cst.Call
    base: str
    """The parameter."""
    offsets: tuple[cst.BaseExpression, ...]
    """Scalars that are added to it."""
    origin: tuple[cst.BaseExpression, ...]
    """What is added up where the access stands: the parameter, which may have been moved on by some
    of the offsets, and the other offsets."""
    lengths: tuple[cst.BaseExpression, ...]
    """What the lengths are computed from."""
    dimensions: tuple[Dimension, Dimension]
    """Rows and columns of the tile as the kernel sees it."""
    transposed: bool
    """It is the first dimension whose elements lie side by side."""


def tile_access(source: Source, kernel: Kernel, call: cst.Call) -> TileAccess:
    """The tile that a load or store touches. Raises `NotApplicable` when it is none."""
    return _TileReader(source, kernel, call).access()


@dataclass(frozen=True)
class _Term:
    span: Span
    stride: tuple[str, ...]


@dataclass(frozen=True)
class _Bound:
    """A comparison of a mask: what counts up from the starts stays below the length."""

    starts: tuple[str, ...]
    """Sorted."""
    extent: str
    length: cst.BaseExpression


@dataclass
class _TileReader:
    source: Source
    kernel: Kernel
    call: cst.Call

    def access(self) -> TileAccess:
        pointer = argument(self.call, 0, "pointer")
        if pointer is None:
            raise self.refusal("does not show its pointer")
        address, advance = self._address(pointer)
        base: str | None = None
        offsets: list[cst.BaseExpression] = []
        origin: list[cst.BaseExpression] = []
        found: dict[int, _Term] = {}
        for term in self._flattened(address):
            tiled = self._tiled(term)
            if tiled is not None and tiled.span.axis is not None:
                if tiled.span.axis in found:
                    raise self.refusal("steps through a dimension in two ways")
                found[tiled.span.axis] = tiled
            elif not holds_at(self.source, term, self.call):
                raise self.refusal(f"adds `{self.source.code(term)}`, which has changed")
            elif base is None and (moved := self._moved(term)) is not None:
                base, before = moved
                offsets += before
                origin.append(term)
            elif self._is_offset(term):
                offsets.append(term)
                origin.append(term)
            else:
                raise self.refusal(f"adds `{self.source.code(term)}` to its address")
        if base is None or found.keys() != {0, 1}:
            raise self.refusal(NO_TILE)
        bounds = self._bounds()
        starts = {axis: self._start(term, advance) for axis, term in found.items()}
        dimensions = [self._dimension(axis, found[axis], starts[axis], bounds) for axis in (0, 1)]
        transposed = not dimensions[0].stride
        if advance is not None and not any(starts[a] != self._own(found[a]) for a in found):
            raise self.refusal("moves its pointer in a way that is not followed")
        return TileAccess(
            self.call,
            base,
            tuple(offsets),
            tuple(origin),
            tuple(bound.length for bound in bounds.values()),
            (dimensions[0], dimensions[1]),
            transposed,
        )

    def refusal(self, what: str) -> NotApplicable:
        kind = "load" if self.source.name(self.call.func) == LOAD else "store"
        return NotApplicable(f"the {kind} at line {self.source.line(self.call)} {what}")

    # --- the address ---

    def _address(
        self, pointer: cst.BaseExpression
    ) -> tuple[cst.BaseExpression, cst.AugAssign | None]:
        """The sum that a pointer is, and the statement that moves it on in each round."""
        behind = value_of(self.source, pointer)
        if not isinstance(behind, cst.Name) or behind.value in self._parameters:
            return behind, None
        body = self.kernel.function.node.body
        name, loop = behind.value, self._loop()
        values = [v for t, v in assigned(body) if _binds(t, name)]
        moved = [a for a in descendants(body, cst.AugAssign) if _binds(a.target, name)]
        if len(values) == 2 and len(moved) == 1 and loop is not None:
            (step,) = moved
            (start,) = (value for value in values if value is not step.value)
            anew = self._loops(start) == self._loops(loop)
            if isinstance(step.operator, cst.AddAssign) and anew and self._follows(loop, step):
                return start, step
        raise self.refusal(f"moves `{name}` in a way that is not followed")

    def _follows(self, loop: cst.For, step: cst.AugAssign) -> bool:
        """Whether a statement of the loop itself comes after the access."""
        places = [
            next((i for i, line in enumerate(loop.body.body) if _contains(line, node)), None)
            for node in (self.call, step)
        ]
        own = any(step in line.body for line in loop.body.body
                  if isinstance(line, cst.SimpleStatementLine))  # fmt: skip
        call, move = places
        return own and call is not None and move is not None and call < move

    def _flattened(self, node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
        """The terms of a sum, and of the sums that names in it stand for."""
        if isinstance(node, cst.Name) and span_of(self.source, node) is None:
            behind = value_of(self.source, node)
            if _is_sum(behind) and node.value not in names_in(behind):
                node = behind
        if isinstance(node, cst.BinaryOperation) and _is_sum(node):
            yield from self._flattened(node.left)
            yield from self._flattened(node.right)
        else:
            yield node

    def _is_offset(self, term: cst.BaseExpression) -> bool:
        """Whether a term is a number that may be computed once more: nothing is loaded for it."""
        return is_scalar(self.source, term) and not TRITON.has(self.source, term, TRITON.loads)

    def _moved(self, term: cst.BaseExpression) -> tuple[str, tuple[cst.BaseExpression, ...]] | None:
        """The parameter that a name is, and what has been added to it: `x += row * stride`."""
        if not isinstance(term, cst.Name):
            return None
        found = definition(self.source, term.value, term)
        if found is not None and isinstance(found.node, cst.Param):
            return term.value, ()
        before: cst.BaseExpression | None = None
        added: list[cst.BaseExpression] = []
        if (step := augmentation(self.source, term)) is not None:
            if isinstance(step.operator, cst.AddAssign):
                before, added = step.target, list(self._flattened(step.value))
        elif found is not None and found.value is not None and _is_sum(found.value):
            terms = list(self._flattened(found.value))
            own = [t for t in terms if isinstance(t, cst.Name) and t.value == term.value]
            before = own[0] if len(own) == 1 else None
            added = [t for t in terms if t is not before]
        inner = self._moved(before) if before is not None else None
        if inner is None or not all(is_scalar(self.source, each) for each in added):
            return None
        return inner[0], (*inner[1], *added)

    @cached_property
    def _parameters(self) -> frozenset[str]:
        """Those that the kernel never assigns."""
        names = (p.name.value for p in self.kernel.function.parameters)
        return frozenset(n for n in names if not binds(self.kernel.function.node.body, n))

    def _tiled(self, term: cst.BaseExpression) -> _Term | None:
        """`rows[:, None] * stride`, `stride * rows[:, None]` or `cols[None, :]`."""
        behind = value_of(self.source, term)
        span = span_of(self.source, behind)
        if span is not None:
            return _Term(span, ())
        if isinstance(behind, cst.BinaryOperation) and isinstance(behind.operator, cst.Multiply):
            for one, other in ((behind.left, behind.right), (behind.right, behind.left)):
                span = span_of(self.source, one)
                if span is not None and is_scalar(self.source, other):
                    factors = (code.strip("()") for code in self._codes(_factors(other)))
                    return _Term(span, tuple(code for code in factors if code != "1"))
        return None

    # --- where it starts and ends ---

    def _own(self, term: _Term) -> str:
        return " + ".join(self._codes(term.span.starts)) or "0"

    def _codes(self, parts: Iterable[cst.BaseExpression]) -> list[str]:
        return [self.source.code(part) for part in parts]

    def _start(self, term: _Term, advance: cst.AugAssign | None) -> str:
        """The first element along a dimension, in the terms of the place of the access."""
        for start in term.span.starts:
            if not holds_at(self.source, start, self.call):
                raise self.refusal(f"starts at `{self.source.code(start)}`, which has changed")
            if may_be_negative(self.source, start):
                raise self.refusal(f"starts at `{self.source.code(start)}`, which may be negative")
        if advance is None or not self._is_step(advance.value, term):
            return self._own(term)
        loop = self._loop()
        assert loop is not None
        if term.span.starts or not isinstance(loop.target, cst.Name):
            raise self.refusal("moves on from a start that is not zero")
        variable, extent = loop.target.value, term.span.extent
        if binds(loop.body, variable):
            raise self.refusal(f"is in a loop that changes {variable}")
        for text in (variable, f"{variable} * {extent}"):
            if self._steps_by(loop, text, extent):
                return text
        raise self.refusal(f"moves on by {extent}, which the loop over {variable} does not")

    def _is_step(self, value: cst.BaseExpression, term: _Term) -> bool:
        """Whether a pointer moves by the extent of a dimension: `BLOCK_K * stride`."""
        return sorted(self._codes(_factors(value))) == sorted((term.span.extent, *term.stride))

    def _steps_by(self, loop: cst.For, text: str, extent: str) -> bool:
        given = loop.iter.args if isinstance(loop.iter, cst.Call) else ()
        codes = [self.source.code(a.value) for a in given if a.keyword is None]
        if isinstance(loop.iter, cst.Call) and self.source.name(loop.iter.func) not in (
            "builtins.range", "triton.language.range"
        ):  # fmt: skip
            return False
        if "*" not in text:
            return len(codes) == 3 and codes[0] == "0" and codes[2] == extent
        return len(codes) == 1 or (len(codes) == 2 and codes[0] == "0")

    def _loop(self) -> cst.For | None:
        for around in self.source.ancestors(self.call):
            if isinstance(around, cst.For):
                return around
            if isinstance(around, cst.FunctionDef | cst.While):
                return None
        return None

    def _loops(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        around = self.source.ancestors(node)
        return [a for a in around if isinstance(a, cst.For | cst.While)]

    def _bounds(self) -> dict[int, _Bound]:
        """Axis -> the comparison of the mask."""
        mask = argument(self.call, 1 if self.source.name(self.call.func) == LOAD else 2, "mask")
        found: dict[int, _Bound] = {}
        for condition, expanded in self._conditions(mask):
            bound = upper_bound(condition)
            span = span_of(self.source, bound[0]) if bound is not None else None
            axis = expanded if span is None or span.axis is None else span.axis
            if bound is None or span is None or axis is None or axis in found:
                code = self.source.code(condition)
                raise self.refusal(f"has a mask that is no bound: `{code}`")
            found[axis] = self._bound(span, bound[1])
        return found

    def _conditions(
        self, mask: cst.BaseExpression | None
    ) -> Iterator[tuple[cst.BaseExpression, int | None]]:
        """The conditions of a mask, and the dimension that one for a row is expanded along."""
        for condition in conditions(self.source, mask, even=UNMASKED):
            axis = expanded_axis(condition) if isinstance(condition, cst.Subscript) else None
            if axis is None:
                yield condition, None
            else:
                assert isinstance(condition, cst.Subscript)
                for inner in conditions(self.source, condition.value, even=UNMASKED):
                    yield inner, axis

    def _bound(self, span: Span, right: cst.BaseExpression) -> _Bound:
        starts = list(span.starts)
        bound = value_of(self.source, right)
        if isinstance(bound, cst.BinaryOperation) and isinstance(bound.operator, cst.Subtract):
            starts.append(bound.right)
            bound = bound.left
        bound = value_of(self.source, bound)
        if not isinstance(bound, cst.Name) or not is_scalar(self.source, bound):
            raise self.refusal(f"is bounded by `{self.source.code(bound)}`, which is no number")
        for each in (*starts, bound):
            if not holds_at(self.source, each, self.call):
                raise self.refusal(f"is masked by `{self.source.code(each)}`, which has changed")
        return _Bound(tuple(sorted(self._codes(starts))), span.extent, bound)

    def _dimension(
        self,
        axis: int,
        term: _Term,
        start: str,
        bounds: dict[int, _Bound],
    ) -> Dimension:
        extent = term.span.extent
        if extent not in self.kernel.constants and not extent.isdecimal():
            raise self.refusal(f"has an extent that is no constant of the kernel: {extent}")
        if any(not f.isdecimal() and f not in self._parameters for f in term.stride):
            stride = " * ".join(term.stride)
            raise self.refusal(f"has a stride that is no parameter of the kernel: {stride}")
        wide = any(is_wide(self.source, each) for each in term.span.starts) or (
            start != self._own(term) and self._is_wide_loop()
        )
        if axis not in bounds:
            if start != "0":
                raise self.refusal(f"has no mask along its dimension {axis}, from {start}")
            return Dimension(start, extent, term.stride, extent, wide)
        bound = bounds[axis]
        moved = start != self._own(term)
        own = sorted(s for s in self._codes(term.span.starts) if s != "0")
        expected = [start] if moved else own
        if bound.extent != extent or list(bound.starts) != expected:
            raise self.refusal(f"is masked along its dimension {axis} from somewhere else")
        return Dimension(start, extent, term.stride, self.source.code(bound.length), wide)

    def _is_wide_loop(self) -> bool:
        """Whether the loop around may count in more than 32 bits."""
        loop = self._loop()
        given = loop.iter.args if loop is not None and isinstance(loop.iter, cst.Call) else ()
        return any(is_wide(self.source, arg.value) for arg in given)


def _is_sum(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add)


def _factors(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply):
        yield from _factors(node.left)
        yield from _factors(node.right)
    else:
        yield node


def _binds(target: cst.CSTNode, name: str) -> bool:
    """Whether a target is the name, or a tuple with it."""
    if isinstance(target, cst.Tuple | cst.List):
        return any(_binds(element.value, name) for element in target.elements)
    return isinstance(target, cst.Name) and target.value == name


def _contains(node: cst.CSTNode, inner: cst.CSTNode) -> bool:
    return any(n is inner for n in descendants(node, type(inner)))
