"""What one round of a loop over blocks hands on: sums over all rounds, or facts of its block alone.

A loop that goes over an axis block by block may reduce each block, as long as the results are put
together over all rounds: then the axis may be cut anywhere. A scale of each block that is stored
with it, a sum that only goes up to the block's own elements, or an average that forgets a share a
round is another value with other blocks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

import libcst as cst

from agent.analysis.common.constant_flow import Flow
from agent.analysis.common.derived_names import derived_names, reaches
from agent.analysis.common.dialect import SHAPING, callees
from agent.analysis.common.growth import contracted
from agent.analysis.common.reaching_definitions import definition
from agent.syntax import assigned, children, descendants, names_in, positional

_SCALING = (cst.Multiply, cst.MultiplyAssign, cst.Divide, cst.DivideAssign)
_ATOMIC = {"atomic_add": "sum", "atomic_max": "max", "atomic_min": "min"}
"""What an atomic operation does with what is there -> the reduction that it goes on with."""
_DEEP = 10


def kept_block_by_block(flow: Flow) -> str | None:
    """Why a loop's rounds may not be other ones; None where it puts together what they reduce."""
    loops = [loop for loop in descendants(flow.body, cst.For) if flow.carries(loop.iter)]
    if not loops:
        return None
    line = flow.source.line
    reductions = [*flow.reductions()]
    for call in reductions:
        if _around(flow, call, loops) is not None or _is_instead(flow, call, loops):
            continue
        if _is_loaded_outside(flow, call, loops):
            return flow.reduced(call)
    for found in rounds_of(flow):
        if (store := found.store()) is not None:
            return f"line {line(store)} stores what it reduces in that round, block by block"
        if (node := found.forgotten()) is not None:
            return f"line {line(node)} keeps of what it reduces what the blocks before say, not all"
    return None


def rounds_of(flow: Flow) -> Iterator[Round]:
    """One round of each loop whose bounds are computed from the constant."""
    loops = [loop for loop in descendants(flow.body, cst.For) if flow.carries(loop.iter)]
    reductions = [*flow.reductions(), *contracted(flow)]
    for loop in loops:
        yield Round(flow, loop, frozenset(
            node for node in _reducing(flow, loop.body, reductions)
            if _around(flow, node, loops) is loop
        ))  # fmt: skip


def is_product(flow: Flow, reduction: cst.CSTNode) -> bool:
    """Whether a reduction is a product of matrices, which adds up."""
    match reduction:
        case cst.BinaryOperation():
            return True
        case cst.Call():
            return flow.called(reduction) in flow.dialect.dots
    return False


def _around(flow: Flow, node: cst.CSTNode, loops: list[cst.For]) -> cst.For | None:
    """The innermost of the loops that a node stands in."""
    around = (a for a in flow.source.ancestors(node) if isinstance(a, cst.For))
    return next((loop for loop in around if loop in loops), None)


def _reducing(
    flow: Flow, body: cst.CSTNode, reductions: list[cst.BaseExpression]
) -> Iterator[cst.BaseExpression]:
    """The reductions in a body, and the calls of helpers that have one."""
    for node in descendants(body, cst.BaseExpression):  # type: ignore[type-abstract]
        helper = flow.source.function_of(node.func) if isinstance(node, cst.Call) else None
        if node in reductions:
            yield node
        elif helper is not None:
            below = {
                each for f in (helper, *callees(flow.source, helper))
                for each in descendants(f.node.body, cst.BaseExpression)  # type: ignore[type-abstract]
            }  # fmt: skip
            if not below.isdisjoint(reductions):
                yield node


def _is_instead(flow: Flow, node: cst.CSTNode, loops: list[cst.For]) -> bool:
    """Whether a node runs instead of the loops: `if ONE_BLOCK: ... else: for ...`.

    Its branch is then for axes that one block holds, as a test by the size itself says too.
    """
    inner = node
    for around in flow.source.ancestors(node):
        if isinstance(around, cst.If) and inner is not around.test:
            others = [part for part in (around.body, around.orelse) if part not in (None, inner)]
            tested = descendants(around.test, cst.Name)
            if any(name.value in flow.names for name in tested) or any(
                loop in descendants(part, cst.For) for part in others if part for loop in loops
            ):
                return True
        inner = around
    return False


def _is_loaded_outside(flow: Flow, reduction: cst.Call, loops: list[cst.For]) -> bool:
    """Whether a reduction outside the loops is of a block that no loop goes over."""

    def counts(node: cst.CSTNode) -> bool:
        return _around(flow, node, loops) is None and not _is_instead(flow, node, loops)

    begin = frozenset(load for load in _loads(flow) if counts(load))
    names = derived_names(
        flow.body, lambda value, known: counts(value) and _holds(value, begin, known)
    )
    return any(_holds(arg, begin, names) for arg in reduction.args)


def _loads(flow: Flow) -> Iterator[cst.Call]:
    """The loads that depend on the constant."""
    return (call for call in flow.accesses if flow.dialect.stored(flow.source, call) is None)


def _computed_from(body: cst.CSTNode, begin: frozenset[cst.BaseExpression]) -> frozenset[str]:
    """The names of a body whose values come from some calls."""
    return frozenset(derived_names(body, lambda value, names: _holds(value, begin, names)))


def _holds(node: cst.CSTNode, begin: frozenset[cst.BaseExpression], names: Collection[str]) -> bool:
    """Whether a value comes from one of these calls or names."""
    if isinstance(node, cst.Name):
        return node.value in names
    if node in begin:
        return True
    below = (node.value,) if isinstance(node, cst.Attribute | cst.Arg) else children(node)
    return any(_holds(child, begin, names) for child in below)


def _is_none(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Name) and node.value == "None"


def _unexpanded(node: cst.BaseExpression) -> cst.BaseExpression:
    """`x` of `x[:, None]`."""
    if isinstance(node, cst.Subscript) and all(
        isinstance(index := element.slice, cst.Slice)
        or (isinstance(index, cst.Index) and _is_none(index.value))
        for element in node.slice
    ):
        return node.value
    return node


@dataclass(frozen=True)
class Round:
    """One round of a loop over blocks."""

    flow: Flow
    loop: cst.For
    reductions: frozenset[cst.BaseExpression]
    """Those of this loop's blocks, products of matrices among them, and not of a loop within it."""

    @cached_property
    def values(self) -> list[tuple[str, cst.BaseExpression]]:
        """Names and what the round assigns to them, or combines with them."""
        return [*self._values_in(self.loop.body)]

    @cached_property
    def augmented(self) -> dict[cst.BaseExpression, cst.AugAssign]:
        return {each.value: each for each in descendants(self.loop.body, cst.AugAssign)}

    @cached_property
    def _reduced(self) -> frozenset[str]:
        """The names whose values come from what the round reduces."""
        return _computed_from(self.loop.body, self.reductions)

    @cached_property
    def _sums(self) -> frozenset[cst.BaseExpression]:
        return frozenset(r for r in self.reductions if not is_product(self.flow, r))

    @cached_property
    def _summed(self) -> frozenset[str]:
        return _computed_from(self.loop.body, self._sums)

    @cached_property
    def _loading(self) -> frozenset[cst.Call]:
        below = {*descendants(self.loop.body, cst.Call)}
        return frozenset(load for load in _loads(self.flow) if load in below)

    @cached_property
    def _loaded(self) -> frozenset[str]:
        """The names whose values come from what the round loads of its block."""
        return _computed_from(self.loop.body, self._loading)

    @cached_property
    def kept(self) -> frozenset[str]:
        """The names that keep something of the blocks before."""
        return frozenset(name for name in self._loaded | self._reduced if self._carried(name))

    def _is_reduced(self, node: cst.CSTNode) -> bool:
        return _holds(node, self.reductions, self._reduced)

    def _comes_from_block(self, node: cst.CSTNode) -> bool:
        return self._is_reduced(node) or _holds(node, self._loading, self._loaded)

    def store(self) -> cst.Call | None:
        """A store of the round, of what it reduces or keeps of the blocks before.

        Not where that is put together in memory, or is what all elements before one add up to.
        """
        for call in descendants(self.loop.body, cst.Call):
            stored = self.flow.dialect.stored(self.flow.source, call)
            if stored is None:
                continue
            comes = (
                _holds(stored, self._sums, self._summed)
                if self._is_chosen(call)
                else self._is_reduced(stored) or _holds(stored, frozenset(), self.kept)
            )
            if comes and not self._together(call, stored) and not self._is_prefix(stored):
                return call
        return None

    def _is_chosen(self, node: cst.CSTNode) -> bool:
        """Whether not every round comes by a node: the last one may, with what all of them add."""
        around = self.flow.source.ancestors(node)
        return any(
            isinstance(each, cst.If) for each in takewhile(lambda a: a is not self.loop, around)
        )

    def _behind(self, value: cst.BaseExpression) -> cst.BaseExpression:
        """What is behind a name that the round assigns once, without casts and other shapes."""
        source, dialect = self.flow.source, self.flow.dialect
        for _ in range(_DEEP):
            given: cst.BaseExpression | None = None
            if isinstance(value, cst.Name):
                values = [other for name, other in self.values if name == value.value]
                given = values[0] if len(values) == 1 and values[0] not in self.augmented else None
            elif (
                isinstance(value, cst.Call)
                and isinstance(value.func, cst.Attribute)
                and value.func.attr.value in SHAPING
            ):
                owned = dialect.owns(source.name(value.func))
                given = next(iter(positional(value)), None) if owned else value.func.value
            if given is None:
                break
            value = given
        return value

    def _reduction(self, value: cst.BaseExpression) -> tuple[str, cst.Call] | None:
        """The reduction that a value is, with its bare name, if it is one of the block."""
        behind = self._behind(value)
        if behind not in self.reductions or not isinstance(behind, cst.Call):
            return None
        called = self.flow.called(behind).rpartition(".")[2]
        return called, behind

    def _together(self, store: cst.Call, stored: cst.BaseExpression) -> bool:
        """`atomic_add(total, i, sum(x))`: the sum over all rounds, whatever they are."""
        called = self.flow.called(store).rpartition(".")[2]
        found = self._reduction(stored)
        return (
            found is not None
            and _ATOMIC.get(called) == found[0]
            and not any(self._is_reduced(arg) for arg in found[1].args)
            and not any(_holds(arg, frozenset(), self.kept) for arg in found[1].args)
        )

    def _is_prefix(self, stored: cst.BaseExpression) -> bool:
        """`total + cumsum(x)` where the round goes on with `total += sum(x)`."""
        whole = self._behind(stored)
        if not isinstance(whole, cst.BinaryOperation) or not isinstance(whole.operator, cst.Add):
            return False
        for total, scan in ((whole.left, whole.right), (whole.right, whole.left)):
            total, found = _unexpanded(total), self._reduction(scan)
            if found is None or found[0] != "cumsum" or not isinstance(total, cst.Name):
                continue
            steps = [value for name, value in self.values if name == total.value]
            place = self.flow.source.place
            if len(steps) != 1 or place(steps[0]).start.line < place(whole).start.line:
                continue
            added = self._added(total.value, steps[0])
            summed = self._reduction(added) if added is not None else None
            if summed is not None and summed[0] == "sum" and self._alike(found[1], summed[1]):
                return True
        return False

    def _added(self, name: str, value: cst.BaseExpression) -> cst.BaseExpression | None:
        """What a round adds to a name: `x` of `name += x`, or of `name = name + x`."""
        if value in self.augmented:
            adds = isinstance(self.augmented[value].operator, cst.AddAssign)
            return value if adds else None
        if isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Add):
            for own, other in ((value.left, value.right), (value.right, value.left)):
                if isinstance(own, cst.Name) and own.value == name:
                    return other
        return None

    def _alike(self, one: cst.Call, other: cst.Call) -> bool:
        """Whether two reductions are of the same tile, which is not yet kept of blocks before."""
        code, values = self.flow.source.code, [positional(call)[:1] for call in (one, other)]
        if not all(values) or code(values[0][0]) != code(values[1][0]):
            return False
        names = names_in(values[0][0])
        return (
            all(sum(name == each for each, _ in self.values) < 2 for name in names)
            and not self._is_reduced(values[0][0])
            and not _holds(values[0][0], frozenset(), self.kept)
        )

    def forgotten(self) -> cst.CSTNode | None:
        """Where a result leaves the loop that is not put together over its rounds."""
        for name, value in self.values:
            if name in self.kept:
                if self._is_faded(name, value):
                    return value
            elif name in self._reduced and self._is_reduced(value) and self._is_last(name, value):
                return value
        return None

    def _carried(self, name: str) -> bool:
        """Whether a name's value depends on what it had in the round before."""
        if not self._reaches(name, [v for n, v in self.values if n == name], augmented=True):
            return False
        return not self._begins_anew(name, self.loop.body.body)

    def _begins_anew(self, name: str, lines: Sequence[cst.CSTNode]) -> bool:
        """Whether a name is first given a value that does not depend on the one that it has."""
        for line in lines:
            first = next((v for n, v in self._values_in(line) if n == name), None)
            if first is None:
                continue
            if isinstance(line, cst.If):
                other = line.orelse
                rest = [other] if isinstance(other, cst.If) else other.body.body if other else ()
                return all(self._begins_anew(name, each) for each in (line.body.body, rest))
            if isinstance(line, cst.For | cst.While | cst.With):
                return self._begins_anew(name, line.body.body)
            return first not in self.augmented and not self._reaches(name, [first])
        return False

    def _values_in(self, node: cst.CSTNode) -> Iterator[tuple[str, cst.BaseExpression]]:
        """What a part of the round assigns to names."""
        for target, value in assigned(node):
            for name in descendants(target, cst.Name):
                yield name.value, value

    def _reaches(
        self, name: str, values: Sequence[cst.BaseExpression], *, augmented: bool = False
    ) -> bool:
        """Whether values are computed from a name, through what the round assigns."""
        if augmented and any(value in self.augmented for value in values):
            return True
        return reaches(name, values, self.values)

    def _is_last(self, name: str, value: cst.CSTNode) -> bool:
        """Whether the value of the last round is read behind the loop."""
        source = self.flow.source
        around = takewhile(lambda a: a is not self.loop, source.ancestors(value))
        if any(isinstance(each, cst.If | cst.For | cst.While) for each in around):
            return False  # one of the rounds is chosen, or a loop within goes on with it
        written = {
            id(node) for target, _ in assigned(self.flow.body)
            for node in descendants(target, cst.Name)
        }  # fmt: skip
        end = source.place(self.loop).end.line
        return any(
            use.value == name
            and id(use) not in written
            and source.place(use).start.line > end
            and definition(source, name, use) is None
            for use in descendants(self.flow.body, cst.Name)
        )

    def _is_faded(self, name: str, value: cst.BaseExpression) -> bool:
        """Whether what the name had is scaled by what no block says, or taken off."""
        if value in self.augmented:
            scales = isinstance(self.augmented[value].operator, _SCALING)
            return scales and not self._comes_from_block(value)
        node: cst.CSTNode = value
        while isinstance(node, cst.BinaryOperation):
            left, right = (name in names_in(side) for side in (node.left, node.right))
            if left == right:
                return False
            own, other = (node.left, node.right) if left else (node.right, node.left)
            if isinstance(node.operator, _SCALING) and not self._comes_from_block(other):
                return True
            if isinstance(node.operator, cst.Subtract) and right:
                return True
            node = own
        return False
