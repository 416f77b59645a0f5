"""Gathers at indices that are looked up in a table: which tile of the array, if it is one.

A cache in pages is gathered at `table[i]`, one page a tile of rows or one lookup a row:

    page = ct.gather(table, (sequence, position // PAGE))
    tile = ct.gather(cache, (page[:, None], (position % PAGE)[:, None], columns[None, :]))

Where all positions of a tile are in one page, all its rows look up the same element of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.index_runs import Laid, NotRegular, indexed
from agent.analysis.common.reaching_definitions import definition, value_of
from agent.analysis.cutile.accesses import Bounds, axis_of
from agent.analysis.cutile.dialect import CT
from agent.analysis.cutile.index_ranges import (
    expanded,
    holds_at,
    is_scalar,
    reshaped,
    run_of,
    same_constant,
)
from agent.analysis.cutile.summands import (
    GATHER,
    Lookup,
    Summand,
    Term,
    factor,
    is_constant,
    is_looked_up,
)
from agent.syntax import Source, argument, keyword, positional

_DEEP = 30


@dataclass(frozen=True, kw_only=True)
class Walk(Laid):
    """Indices that begin at a sum of terms and count, or repeat the sum `length` times."""

    terms: tuple[Term, ...] = ()
    counts: bool = False
    lookups: tuple[Lookup, ...] = ()
    read: tuple[cst.BaseExpression, ...] = ()
    """The expressions of the source that the terms repeat."""


@dataclass(frozen=True)
class PageAxis:
    """Where the tile lies along one axis of the array."""

    index: str
    """Counted in tiles of `length`, or in elements for a single one."""
    length: cst.BaseExpression | None
    place: int
    inside: str
    """A condition under which the tile begins inside the array; empty where it always does."""


@dataclass(frozen=True)
class PageAccess:
    """A gather of a tile at looked up indices."""

    call: cst.Call
    array: cst.Name
    axes: tuple[PageAxis, ...]
    lookups: tuple[Lookup, ...]
    mask: cst.BaseExpression | None
    rank: int

    @property
    def shape(self) -> tuple[cst.BaseExpression | None, ...]:
        """The shape of the gathered tile; None stands for one."""
        by_place = {a.place: a.length for a in self.axes if a.length is not None}
        return tuple(by_place.get(place) for place in reversed(range(self.rank)))


class Lookups:
    """Reads the indices of one kernel's gathers."""

    def __init__(
        self, source: Source, kernel: Kernel, name_of: Callable[[cst.BaseExpression], str]
    ) -> None:
        """`name_of` says what the one element of a lookup is to be called."""
        self._source, self._kernel, self._name_of = source, kernel, name_of
        self._parameters = {p.name.value for p in kernel.function.parameters}

    def access(self, call: cst.Call) -> PageAccess:
        """What a gather touches. Raises `NotRegular` with what is in the way."""
        source = self._source
        array, indices = argument(call, 0, "array"), argument(call, 1, "indices")
        if not isinstance(array, cst.Name) or array.value not in self._parameters or not indices:
            raise NotRegular("its array is no parameter of the kernel")
        listed = value_of(source, indices)
        several = [e.value for e in listed.elements] if isinstance(listed, cst.Tuple) else [indices]
        self._bounds = Bounds(source, self._kernel, ((array, len(several)),))
        walks = [self.walk(index) for index in several]
        if not any(term.looked_up for walk in walks for term in walk.terms):
            raise NotRegular("none of its indices is looked up in a table")
        counted = {w.place: w.length for w in walks if w.counts}
        if len(counted) < sum(w.counts for w in walks):
            raise NotRegular("two of its indices run together")
        places = [w.place for w in walks if w.counts]
        if not places:
            raise NotRegular("it touches a single element")
        if places != sorted(places, reverse=True):
            raise NotRegular("its tile is transposed")
        for walk in walks:
            if not walk.counts and walk.length is not None:
                other = counted.get(walk.place)
                if other is None or not same_constant(source, other, walk.length):
                    raise NotRegular("its lookups are repeated along no axis of its tile")
            for expression in walk.read:
                if not holds_at(source, expression, call):
                    raise NotRegular(f"`{source.code(expression)}` has another value there")
        unchecked = keyword(call, "check_bounds")
        checked = unchecked is None or source.code(unchecked) != "False"
        mask = keyword(call, "mask")
        if isinstance(mask, cst.Name) and mask.value == "None":
            mask = None
        axes = tuple(
            self._axis(array, number, index, walk, guarded=checked or mask is not None)
            for number, (index, walk) in enumerate(zip(several, walks, strict=True))
        )
        lookups = tuple(dict.fromkeys(found for walk in walks for found in walk.lookups))
        return PageAccess(call, array, axes, lookups, mask, max(w.rank for w in walks))

    def _axis(
        self, array: cst.Name, number: int, index: cst.BaseExpression, walk: Walk, *, guarded: bool
    ) -> PageAxis:
        source = self._source
        length = walk.length if walk.counts else None
        tiles = [self._in_tiles(term, length) for term in walk.terms]
        text = " + ".join(tiles) or "0"
        inside = ""
        if guarded and walk.terms and not self._is_proven(array, number, index):
            first = text if length is None else f"{factor(text)} * {source.code(length)}"
            inside = f"{first} < {array.value}.shape[{number}]"
            if not self._is_natural(index):
                inside = f"0 <= {text} and {inside}"
        return PageAxis(text, length, walk.place, inside)

    def _in_tiles(self, term: Term, length: cst.BaseExpression | None) -> str:
        """A term of an index in tiles of a length."""
        source, unit = self._source, term.unit
        if length is None:
            return term.text if unit is None else f"{factor(term.text)} * {source.code(unit)}"
        if unit is not None and same_constant(source, unit, length):
            return term.text
        if unit is None:
            raise NotRegular(
                f"its tile begins at `{term.text}`, which is no multiple of `{source.code(length)}`"
            )
        self._check_multiple(unit, length)
        return f"{factor(term.text)} * ({source.code(unit)} // {source.code(length)})"

    def _check_multiple(self, whole: cst.BaseExpression, part: cst.BaseExpression) -> None:
        if not self._bounds.is_multiple(whole, part):
            code = self._source.code
            raise NotRegular(f"nothing says that {code(whole)} is a multiple of {code(part)}")

    def _is_proven(self, array: cst.Name, number: int, index: cst.BaseExpression) -> bool:
        """Whether the host code and the loops say that the tile begins inside the array."""
        try:
            self._bounds.check_axis(
                array, number, axis_of(self._source, run_of(self._source, index))
            )
        except NotRegular:
            return False
        return True

    def _is_natural(self, index: cst.BaseExpression) -> bool:
        behind = value_of(self._source, index)
        return isinstance(behind, cst.Call) and self._source.name(behind.func) == f"{CT}bid"

    # --- one index ------------------------------------------------------------------------------

    def walk(self, expression: cst.BaseExpression, deep: int = 0) -> Walk:
        """The walk that an index is. Raises `NotRegular` when it is none."""
        source = self._source
        if deep > _DEEP:
            raise NotRegular(f"`{source.code(expression)}` is too deep to follow")
        if is_scalar(source, expression):
            summands = [*self._terms(expression, 0)]
            terms = tuple(term for term, _, _ in summands)
            lookups = tuple(found for _, _, found in summands if found is not None)
            return Walk(rank=0, terms=terms, lookups=lookups, read=tuple(e for _, e, _ in summands))
        behind = value_of(source, expression)
        match behind:
            case cst.BinaryOperation(left=left, operator=operator, right=right):
                return self._operation(behind, left, operator, right, deep + 1)
            case cst.Subscript(value=value):
                return indexed(source, behind, self.walk(value, deep + 1))
            case cst.Call():
                return self._called(behind, deep + 1)
            case cst.Name():
                raise NotRegular(self._not_followed(behind))
        raise NotRegular(f"`{source.code(expression)}` does not count one by one")

    def _not_followed(self, name: cst.Name) -> str:
        """Why nothing is known of what a name stands for."""
        found = definition(self._source, name.value, name)
        if found is None:
            return f"what `{name.value}` is depends on the way to it"
        if found.value is not None and found.index is not None:
            line, code = self._source.line(found.value), self._source.code(found.value)
            return f"`{name.value}` is one of what `{code}` at line {line} gives: not followed"
        return f"what `{name.value}` is, is not followed"

    def _operation(
        self,
        whole: cst.BinaryOperation,
        left: cst.BaseExpression,
        operator: cst.BaseBinaryOp,
        right: cst.BaseExpression,
        deep: int,
    ) -> Walk:
        match operator:
            case cst.Add():
                return self._sum(self.walk(left, deep), self.walk(right, deep))
            case cst.Multiply():
                return self._product(left, right, deep)
            case cst.FloorDivide():
                return self._page(self.walk(left, deep), right)
            case cst.Modulo():
                return self._slot(self.walk(left, deep), right)
        raise NotRegular(f"`{self._source.code(whole)}` does not count one by one")

    def _sum(self, one: Walk, other: Walk) -> Walk:
        if one.counts and other.counts:
            raise NotRegular("it adds two tiles of indices")
        wide, narrow = (other, one) if other.counts or one.length is None else (one, other)
        lengths = wide.length, narrow.length
        if (
            lengths[0] is not None
            and lengths[1] is not None
            and (
                (wide.place, wide.rank) != (narrow.place, narrow.rank)
                or not same_constant(self._source, lengths[0], lengths[1])
            )
        ):
            raise NotRegular("it adds tiles of different shapes")
        return replace(
            wide,
            terms=(*one.terms, *other.terms),
            lookups=(*one.lookups, *other.lookups),
            read=(*one.read, *other.read),
        )

    def _product(self, left: cst.BaseExpression, right: cst.BaseExpression, deep: int) -> Walk:
        """Of looked up pages and their size."""
        tile, unit = (right, left) if is_scalar(self._source, left) else (left, right)
        walk = self.walk(tile, deep)
        if walk.counts or not is_constant(self._source, self._kernel, unit) or len(walk.terms) != 1:
            raise NotRegular(
                f"`{self._source.code(tile)} * {self._source.code(unit)}` does not count one by one"
            )
        (term,) = walk.terms
        if term.unit is not None:
            raise NotRegular("it multiplies an index twice")
        return replace(walk, terms=(replace(term, unit=unit),), read=(*walk.read, unit))

    def _page(self, walk: Walk, size: cst.BaseExpression) -> Walk:
        """`positions // PAGE`: the same for all of a tile that is within one page."""
        first = self._first(walk, size)
        page = Term(f"{factor(first)} // {self._source.code(size)}" if first else "0")
        return replace(walk, terms=(page,), counts=False, read=(*walk.read, size))

    def _slot(self, walk: Walk, size: cst.BaseExpression) -> Walk:
        """`positions % PAGE`: counts on from the place of the tile in its page."""
        first, length = self._first(walk, size), walk.length
        assert length is not None
        if not first or same_constant(self._source, size, length):
            return replace(walk, terms=())
        code = self._source.code
        tiles = " + ".join(self._in_tiles(term, length) for term in walk.terms)
        text = f"{factor(tiles)} % ({code(size)} // {code(length)})"
        return replace(walk, terms=(Term(text, length),), read=(*walk.read, size))

    def _first(self, walk: Walk, size: cst.BaseExpression) -> str:
        """The first position of a tile that lies within one page; empty for zero."""
        if not walk.counts or walk.length is None:
            raise NotRegular("it divides what does not count one by one")
        if not is_scalar(self._source, size):
            raise NotRegular(f"`{self._source.code(size)}` is no size of a page")
        self._check_multiple(size, walk.length)
        tiles = [self._in_tiles(term, walk.length) for term in walk.terms]
        if not tiles:
            return ""
        return f"{factor(' + '.join(tiles))} * {self._source.code(walk.length)}"

    def _called(self, call: cst.Call, deep: int) -> Walk:
        source, called = self._source, self._source.name(call.func) or ""
        if called == f"{CT}arange":
            length = argument(call, 0, "size")
            if length is None or keyword(call, "start") or keyword(call, "step"):
                raise NotRegular("ct.arange has a start or step of its own")
            return Walk(length=length, counts=True, read=(length,))
        if called == GATHER:
            return self._looked_up(call, deep)
        if called in (f"{CT}add", f"{CT}mul") and len(given := positional(call)) == 2:
            left, right = given
            if called == f"{CT}mul":
                return self._product(left, right, deep)
            return self._sum(self.walk(left, deep), self.walk(right, deep))
        if called == f"{CT}astype":
            return self.walk(positional(call)[0], deep)
        if called == f"{CT}expand_dims" and isinstance(
            axis := argument(call, 1, "axis"), cst.Integer
        ):
            return expanded(self.walk(positional(call)[0], deep), axis.evaluated_value)
        if called == f"{CT}reshape":
            run = self.walk(positional(call)[0], deep)
            return reshaped(source, argument(call, 1, "shape"), run)
        if isinstance(call.func, cst.Attribute) and not called.startswith(CT):
            owner, method = call.func.value, call.func.attr.value
            if method == "astype":
                return self.walk(owner, deep)
            if method == "reshape":
                return reshaped(source, argument(call, 0, "shape"), self.walk(owner, deep))
        raise NotRegular(f"`{source.code(call)}` does not count one by one")

    def _looked_up(self, call: cst.Call, deep: int) -> Walk:
        """A gather of a table at indices that are the same for the whole tile."""
        source = self._source
        table, indices = argument(call, 0, "array"), argument(call, 1, "indices")
        if not isinstance(table, cst.Name) or table.value not in self._parameters or not indices:
            raise NotRegular("it is looked up in what is no parameter of the kernel")
        if keyword(call, "mask") is not None:
            raise NotRegular(f"the lookup at line {source.line(call)} has a mask")
        listed = value_of(source, indices)
        several = [e.value for e in listed.elements] if isinstance(listed, cst.Tuple) else [indices]
        walks = [self.walk(index, deep) for index in several]
        tiles = [walk for walk in walks if walk.length is not None]
        if len(tiles) != 1 or tiles[0].counts:
            raise NotRegular(
                f"line {source.line(call)} looks up `{source.code(indices)}`, which is not the "
                "same for all of a tile"
            )
        for walk in walks:
            for expression in walk.read:
                if not holds_at(source, expression, call):
                    raise NotRegular(f"`{source.code(expression)}` has another value there")
        name = self._name_of(call)
        element = tuple(
            " + ".join(self._in_tiles(term, None) for term in walk.terms) or "0" for walk in walks
        )
        found = Lookup(call, element, name)
        return replace(tiles[0], terms=(Term(name, None, True),), lookups=(found,), read=())

    def _terms(self, expression: cst.BaseExpression, deep: int) -> Iterator[Summand]:
        """A scalar as a sum, each summand a multiple of a constant where that is in sight."""
        behind = value_of(self._source, expression)
        match behind:
            case _ if deep > _DEEP:
                yield self._term(expression, None)
            case cst.Integer(value="0"):
                return
            case cst.BinaryOperation(left=left, operator=cst.Add(), right=right):
                yield from self._terms(left, deep + 1)
                yield from self._terms(right, deep + 1)
            case cst.BinaryOperation(left=left, operator=cst.Multiply(), right=right):
                if is_constant(self._source, self._kernel, right):
                    yield self._term(left, right)
                elif is_constant(self._source, self._kernel, left):
                    yield self._term(right, left)
                else:
                    yield self._term(expression, None)
            case _:
                yield self._term(expression, None)

    def _term(self, expression: cst.BaseExpression, unit: cst.BaseExpression | None) -> Summand:
        """One element that is looked up in the index itself is read once, under a name."""
        if is_looked_up(self._source, expression) and not isinstance(expression, cst.Name):
            name = self._name_of(expression)
            return Term(name, unit, True), expression, Lookup(expression, None, name)
        text = self._source.code(expression)
        return Term(text, unit, is_looked_up(self._source, expression)), expression, None
