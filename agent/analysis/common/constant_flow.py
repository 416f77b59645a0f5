"""Dataflow of a compile-time constant inside a kernel: whether it is a tile size only.

A tile size may change only if no result depends on it. It may shape tiles, step loops, and take
part in addresses and masks. It may not reach a stored value: then it is part of the mathematics
(a mean over a block, a scale for each block of a quantization).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from agent.analysis.common.derived_names import derived_names
from agent.analysis.common.dialect import ArgumentSlot, Dialect, Kernel, callees, given_to
from agent.analysis.common.numbers import signed_integer
from agent.syntax import Function, Source, assigned, children, descendants, names_in

_AXIS = ArgumentSlot(1, "axis")
"""Where reductions take their axis."""


@dataclass(frozen=True)
class Flow:
    """Where the value of one constant goes in one kernel."""

    dialect: Dialect
    source: Source
    kernel: Kernel
    constant: str

    @property
    def body(self) -> cst.BaseSuite:
        """The statements of the kernel."""
        return self.kernel.function.node.body

    def called(self, call: cst.Call) -> str:
        """The dotted name of what a call of the kernel calls; empty for what has none."""
        return self.dialect.called(self.source, call) or ""

    def find(self, node: cst.CSTNode, names: Collection[str]) -> Iterator[cst.Call]:
        """The calls below a node to any of those names, in the order of the file."""
        return self.dialect.find(self.source, node, names)

    def has(self, node: cst.CSTNode, names: Collection[str]) -> bool:
        """Whether there is such a call."""
        return self.dialect.has(self.source, node, names)

    @property
    def shapes(self) -> Iterator[cst.BaseExpression]:
        """The tile shapes that the constant is part of."""
        for call in descendants(self.body, cst.Call):
            shape = self._shape(call)
            if shape is not None and self._mentions(shape):
                yield shape

    @cached_property
    def names(self) -> frozenset[str]:
        """The constant and the names whose values are computed from it."""
        return frozenset(derived_names(self.body, self._carries, {self.constant}))

    @cached_property
    def sizes(self) -> frozenset[str]:
        """The constant, and the names of its multiples: `pair = 2 * BLOCK`."""
        names = {self.constant}
        for target, value in assigned(self.body):
            sides = [value.left, value.right] if isinstance(value, cst.BinaryOperation) else [value]
            if is_multiple_of(value, {self.constant}) and all(
                isinstance(side, cst.Integer) or is_multiple_of(side, names) for side in sides
            ):
                names |= names_in(target)
        return frozenset(names)

    def carries(self, node: cst.CSTNode) -> bool:
        """Whether the value of a node is computed from the constant."""
        return self._carries(node, self.names)

    def _counted(self, node: cst.CSTNode) -> bool:
        """Whether a node is computed from the constant only by what counts elements up to it.

        Then its value may well be the same for any size, as that of an argmax is.
        """
        counting = {*self.dialect.iotas, *self.dialect.ranges}

        def mentions(value: cst.CSTNode, names: set[str]) -> bool:
            return self._mentions_outside(value, names, counting)

        return not mentions(node, derived_names(self.body, mentions, {self.constant}))

    def _mentions_outside(
        self, node: cst.CSTNode, names: set[str], counting: Collection[str]
    ) -> bool:
        """Whether a node mentions a name elsewhere than in what counts, compares or loads."""
        if isinstance(node, cst.Name):
            return node.value in names
        if isinstance(node, cst.Comparison):
            return False
        if isinstance(node, cst.Call):
            called = self.called(node)
            if called in counting or called in self.dialect.loads:
                return False
            shape = self._shape(node)
            if shape is not None:
                others = [value for value in self._given(node) if value is not shape]
                return any(self._mentions_outside(a, names, counting) for a in others)
        inner = [node.value] if isinstance(node, cst.Attribute | cst.Arg) else children(node)
        return any(self._mentions_outside(child, names, counting) for child in inner)

    @property
    def in_loop(self) -> bool:
        """Whether a loop's bounds or step are computed from it, so that the loop covers the axis
        whatever the tile."""
        loops = descendants(self.body, cst.For)
        return any(self.carries(loop.iter) for loop in loops)

    def refusal(self) -> str | None:
        """Why a result of the kernel may depend on it; None when none does."""
        for call in descendants(self.body, cst.Call):
            stored = self.dialect.stored(self.source, call)
            if stored is not None and self.carries(stored):
                line = self.source.line(call)
                if self._counted(stored):
                    return (
                        f"line {line} stores what is computed from element numbers, and whether "
                        "another size changes that is not followed"
                    )
                return f"it is part of what line {line} stores"
            if (store := self._stored_by_helper(call, self.names)) is not None:
                return f"it is part of what line {self.source.line(store)} stores"
        for division in descendants(self.body, cst.BinaryOperation):
            if drops_remainder(division, self.sizes):
                return f"line {self.source.line(division)} drops a remainder by it"
        if (permutation := next(self._along(self._permutes), None)) is not None:
            return f"line {self.source.line(permutation)} moves elements within each block"
        reduction = next(self.reductions(), None)
        if not self.in_loop and reduction is not None:
            return self.reduced(reduction)
        return None

    def reduced(self, reduction: cst.Call) -> str:
        """That a reduction runs along it; that it may, where products turn tiles into others."""
        line = self.source.line(reduction)
        if self.dialect.has_dot(self.source, self.kernel):
            return f"line {line} reduces a tile, and whether that is along it is not followed"
        return f"line {line} reduces along it, block by block"

    def guarded(self) -> bool:
        """Whether every access that depends on it is right past the end of an array.

        If not, the present size is taken to divide the axis, as its halves then do.
        """
        in_loop = self.in_loop
        return all(
            self.dialect.guarded(self.source, call, in_loop=in_loop) for call in self.accesses
        ) and not any(
            self.carries(size)
            for call in self.accesses
            for size in self.dialect.unchecked(self.source, self.body, call)
        )

    @property
    def accesses(self) -> Iterator[cst.Call]:
        """Loads and stores that depend on it, and all of a helper that is given what does."""
        names = {*self.dialect.loads, *self.dialect.stores}
        for call in descendants(self.body, cst.Call):
            if not any(self.carries(a.value) or self._mentions(a.value) for a in call.args):
                continue
            if self.called(call) in names:
                yield call
            elif (helper := self.source.function_of(call.func)) is not None:
                for function in dict.fromkeys((helper, *callees(self.source, helper))):
                    yield from self.dialect.find(self.source, function.node.body, names)

    def _carries(self, node: cst.CSTNode, names: set[str] | frozenset[str]) -> bool:
        if isinstance(node, cst.Name):
            return node.value in names
        if isinstance(node, cst.Attribute | cst.Arg):
            return self._carries(node.value, names)
        if isinstance(node, cst.Comparison):
            return False
        if isinstance(node, cst.Call):
            called = self.called(node)
            if called in self.dialect.loads:
                return False
            if called in self.dialect.shape_queries:
                return self._counts_tiles(node, called, names)
            if called in self.dialect.shapes and called not in self.dialect.iotas:
                shape = self._shape(node)
                return any(self._carries(a, names) for a in node.args if a.value is not shape)
            if (method := self._shape_method(node)) is not None:
                shape = method.of(node)
                others = [value for value in self._given(node) if value is not shape]
                return any(self._carries(value, names) for value in others)
            helper = self.source.function_of(node.func)
            if helper is not None and not self._mentions_size(node):
                return self._is_returned(helper, node, names)
        return any(self._carries(child, names) for child in children(node))

    def _is_returned(
        self, helper: Function, call: cst.Call, names: set[str] | frozenset[str]
    ) -> bool:
        """Whether what a helper returns is computed from what it is given of the constant.

        A load at addresses that depend on it is not; of a loop that runs as far as it says, nobody
        has looked at what it adds up.
        """
        carrying = self._carrying_in(helper, call, names)
        if not carrying or helper in callees(self.source, helper):
            return bool(carrying)
        body = helper.node.body
        if any(names_in(loop.test) & carrying for loop in descendants(body, cst.While)):
            return True
        deciding = [loop.iter for loop in descendants(body, cst.For)]
        deciding += [r.value for r in descendants(body, cst.Return) if r.value is not None]
        return any(self._carries(value, carrying) for value in deciding)

    def _carrying_in(
        self, helper: Function, call: cst.Call, names: set[str] | frozenset[str]
    ) -> set[str]:
        """The names of a helper whose values are computed from what a call gives it of the
        constant; those it is given alone, where it calls itself."""
        carrying = {n for n, value in given_to(helper, call).items() if self._carries(value, names)}
        if helper in callees(self.source, helper):
            return carrying
        return derived_names(helper.node.body, self._carries, carrying)

    def _stored_by_helper(
        self, call: cst.Call, names: set[str] | frozenset[str]
    ) -> cst.Call | None:
        """A store of a helper, or of one that it calls, of what is computed from the constant."""
        helper = self.source.function_of(call.func)
        if helper is None or not (carrying := self._carrying_in(helper, call, names)):
            return None
        calls_itself = helper in callees(self.source, helper)
        for inner in descendants(helper.node.body, cst.Call):
            stored = self.dialect.stored(self.source, inner)
            if stored is not None and (calls_itself or self._carries(stored, carrying)):
                return inner
            deeper = None if calls_itself else self._stored_by_helper(inner, carrying)
            if deeper is not None:
                return deeper
        return None

    def _mentions_size(self, call: cst.Call) -> bool:
        """Whether a call is given the constant itself, or a multiple, to do with it as it likes."""
        return bool(names_in(call) & self.sizes)

    def _counts_tiles(self, call: cst.Call, called: str, names: set[str] | frozenset[str]) -> bool:
        """`ct.num_tiles(A, axis=1, shape=(M, K))` depends on K alone."""
        axis_of, shape_of = self.dialect.shape_queries[called]
        axis, shape = axis_of.of(call), shape_of.of(call)
        if isinstance(shape, cst.Tuple | cst.List) and isinstance(axis, cst.Integer):
            index = axis.evaluated_value
            if index < len(shape.elements):
                return self._carries(shape.elements[index].value, names)
        return self._mentions(call)

    def _shape(self, call: cst.Call) -> cst.BaseExpression | None:
        called = self.called(call)
        if called in self.dialect.shapes:
            return self.dialect.shapes[called].of(call)
        if called in self.dialect.shape_queries:
            return self.dialect.shape_queries[called][1].of(call)
        method = self._shape_method(call)
        return method.of(call) if method is not None else None

    def _shape_method(self, call: cst.Call) -> ArgumentSlot | None:
        """Where `tile.reshape((M, K))` takes its shape."""
        if not isinstance(call.func, cst.Attribute) or self.dialect.owns(
            self.source.name(call.func)
        ):
            return None
        return self.dialect.shape_methods.get(call.func.attr.value)

    def _given(self, call: cst.Call) -> list[cst.BaseExpression]:
        """What a call is given, the tile included whose method it is."""
        owner = [call.func.value] if self._shape_method(call) is not None else []  # type: ignore[attr-defined]
        return [*owner, *(a.value for a in call.args)]

    def _mentions(self, node: cst.CSTNode) -> bool:
        return self.constant in names_in(node)

    def _is_only_passed_on(self, call: cst.Call) -> bool:
        """Whether what a call gives is reshaped or stored in place, so that nothing reduces it.

        By a shape that names the constant as well: another would not tell its axis.
        """
        around = next(self.source.ancestors(call), None)
        outer = next(self.source.ancestors(around), None) if around is not None else None
        if not isinstance(outer, cst.Call) or not isinstance(around, cst.Arg | cst.Attribute):
            return False
        if self.dialect.stored(self.source, outer) is call:
            return True
        called = self.called(outer)
        is_function = called.endswith(".reshape") and called in self.dialect.shapes
        is_method = around is outer.func and self._shape_method(outer) is not None
        shape = self._shape(outer) if is_function or is_method else None
        return isinstance(shape, cst.Tuple | cst.List) and self._mentions(shape)

    @property
    def _shapes_more(self) -> bool:
        """Whether a tile of more dimensions than one gets its shape from the constant."""
        return any(
            (shape := self._shape(call)) is not None
            and self._mentions(shape)
            and not (isinstance(shape, cst.Tuple | cst.List) and len(shape.elements) == 1)
            and self.called(call) not in self.dialect.iotas
            for call in descendants(self.body, cst.Call)
        )

    def reductions(self) -> Iterator[cst.Call]:
        """The reductions that may run along the constant's axis.

        The axis is known from the shapes with two or more dimensions, or from how tiles are laid
        along two; without either, any may be.
        """
        if not self._shapes_more and self.dialect.reduces_elsewhere(
            self.source, self.body, self.names
        ):
            return
        yield from self._along(self._reduces)

    def _along(self, axis_of: Callable[[cst.Call], ArgumentSlot | None]) -> Iterator[cst.Call]:
        """The calls that may run along the constant's axis, of those that run along one."""
        axes = {
            (index, len(shape.elements))
            for call in descendants(self.body, cst.Call)
            if isinstance(shape := self._shape(call), cst.Tuple | cst.List)
            and len(shape.elements) > 1
            and not self._is_only_passed_on(call)
            for index, element in enumerate(shape.elements)
            if self._mentions(element)
        }
        for function in self.dialect.reached(self.source, self.kernel):
            body = function.node.body
            for call in descendants(body, cst.Call):
                if (slot := axis_of(call)) is None:
                    continue
                axis = signed_integer(slot.of(call))
                if axis is None or not axes or any(axis % rank == index for index, rank in axes):
                    yield call

    def _permutes(self, call: cst.Call) -> ArgumentSlot | None:
        """Where a call that moves elements takes their axis, as `tl.flip(x, 0)` does."""
        return self.dialect.permutations.get(self.called(call))

    def _reduces(self, call: cst.Call) -> ArgumentSlot | None:
        """Where a reduction takes its axis: `tl.sum(x, 0)`, or `x.sum(axis=0)`."""
        if self.called(call) in self.dialect.reductions:
            return _AXIS
        method = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
        names = {name.rpartition(".")[2] for name in self.dialect.reductions}
        is_method = method in names and not self.dialect.owns(self.source.name(call.func))
        return _AXIS if is_method else None


def is_multiple_of(node: cst.CSTNode, names: Collection[str]) -> bool:
    """Whether a value is one of the names, or a product with it."""
    match node:
        case cst.Name():
            return node.value in names
        case cst.BinaryOperation(operator=cst.Multiply()):
            return is_multiple_of(node.left, names) or is_multiple_of(node.right, names)
    return False


def drops_remainder(division: cst.BinaryOperation, names: Collection[str]) -> bool:
    """Whether it is `n // BLOCK` rather than `(n + BLOCK - 1) // BLOCK` or `-(-n // BLOCK)`."""
    return (
        isinstance(division.operator, cst.FloorDivide)
        and is_multiple_of(division.right, names)
        and not isinstance(division.left, cst.UnaryOperation)
        and not any(n.value in names for n in descendants(division.left, cst.Name))
    )
