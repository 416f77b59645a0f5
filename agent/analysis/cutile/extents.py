"""Symbolic extents of arrays, grids and counts, from the code of a kernel and of its launch.

Extents are taken to be at least one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import libcst as cst

from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.numbers import signed_integer
from agent.analysis.common.reaching_definitions import Definition, definition, traced
from agent.analysis.common.resized import resized
from agent.analysis.common.sizes import (
    ONE,
    ZERO,
    Size,
    cdiv,
    commutative,
    is_share,
    negated_division,
    product,
    rounded_up,
)
from agent.analysis.cutile.dialect import CT
from agent.syntax import Source, argument, keyword, positional

LIKE = tuple(f"torch.{name}_like" for name in ("empty", "zeros", "ones", "full", "rand", "randn"))
MADE = tuple(f"torch.{name}" for name in ("empty", "zeros", "ones", "full", "rand", "randn"))
KEEPS = ("bfloat16", "clone", "contiguous", "cuda", "detach", "float", "half", "to")
"""Methods of a tensor whose result has the same shape."""
FLATTENS = ("flatten", "ravel")
CDIVS = (f"{CT}cdiv", "triton.cdiv")
_DEEP = 30


@dataclass(frozen=True)
class ArrayShape:
    """What is known of an array's shape."""

    base: str
    """The tensor whose shape it has."""
    dims: tuple[Size, ...] | None = None
    """Its extents, where the code lists them."""


@dataclass
class Sizes:
    """Sizes in one kernel at one of its launches; None for what holds whatever the launch."""

    source: Source
    kernel: Kernel
    launch: Launch | None
    ranks: dict[str, int] = field(default_factory=dict)
    """Dimensions of the kernel's arrays, by parameter, where its accesses tell."""
    believes: bool = True
    """Take what the host code asserts for granted."""

    # --- sizes ----------------------------------------------------------------------------------

    def size(self, expression: cst.BaseExpression, deep: int = 0) -> Size:
        """The size that an integer expression is, in the kernel or in its host code."""
        if deep > _DEEP:
            return self._unknown(expression)
        match expression:
            case cst.Integer():
                return Size(str(expression.evaluated_value))
            case cst.Name():
                return self._of_name(expression, deep)
            case cst.BinaryOperation():
                return self._of_operation(expression, deep)
            case cst.UnaryOperation(operator=cst.Minus(), expression=inner):
                division = negated_division(inner)
                if division is not None:
                    return cdiv(*(self.size(side, deep + 1) for side in division))
            case cst.Subscript(value=cst.Attribute(value=owner, attr=cst.Name(value="shape"))):
                axis = _axis(expression)
                if axis is not None:
                    return self.extent(owner, axis, deep)
            case cst.Call():
                return self._of_call(expression, deep)
        return self._unknown(expression)

    def extent(self, array: cst.BaseExpression, axis: int, deep: int = 0) -> Size:
        """How long an array is along an axis."""
        return self._extent(self.tensor(array, deep + 1), axis)

    def grid(self, axis: int) -> Size | None:
        """How many blocks the launch has along an axis; None where its grid is no tuple."""
        listed = traced(self.source, self.launch.grid) if self.launch else None
        if not isinstance(listed, cst.Tuple):
            return None
        return self.size(listed.elements[axis].value) if axis < len(listed.elements) else ONE

    def at_most(self, small: Size, large: Size) -> bool:
        """Whether one size cannot exceed another: by what they are, or by an assertion."""
        return small in (ONE, large) or is_share(small, large) or (small, large) in self._asserted

    def rest(self, whole: Size, start: Size) -> Size | None:
        """What is left of a whole from a start on, or less; None where that may be nothing."""
        if start == ZERO:
            return whole
        if is_share(start, whole):
            return start
        for small, large in self._asserted:
            if large == whole and small.operation == "+" and start in small.parts:
                (other,) = [p for p in small.parts if p != start] or [start]
                if (ZERO, start) in self._asserted:
                    return other
        return None

    # --- tensors --------------------------------------------------------------------------------

    def tensor(self, expression: cst.BaseExpression, deep: int = 0) -> ArrayShape:
        """What an expression that is an array has for a shape."""
        unknown = ArrayShape(self._unknown(expression).operation)
        if deep > _DEEP:
            return unknown
        if isinstance(expression, cst.Name):
            found = definition(self.source, expression.value, expression)
            if found is None or found.index is not None or expression.value in resized(self.source):
                return unknown
            if isinstance(found.node, cst.Param):
                given = self._given(found.node)
                if given is not None:
                    return self.tensor(given, deep + 1)
                return ArrayShape(self._canonical(self._leaf(expression, found)))
            if found.value is None or isinstance(found.node, cst.For):
                return unknown
            made = self.tensor(found.value, deep + 1)
            return ArrayShape(self._canonical(made.base), made.dims)
        if isinstance(expression, cst.Call):
            return self._made(expression, deep) or unknown
        return unknown

    def _made(self, call: cst.Call, deep: int) -> ArrayShape | None:
        called = self.source.name(call.func) or ""
        values = positional(call)
        if called in LIKE and values:
            return self.tensor(values[0], deep + 1)
        if called in MADE:
            shape = keyword(call, "size") or (values[0] if values else None)
            if shape is None:
                return None
            several = values if called not in ("torch.full",) and len(values) > 1 else (shape,)
            return self._listed(call, several, deep)
        if not isinstance(call.func, cst.Attribute):
            return None
        owner, method = call.func.value, call.func.attr.value
        if method in KEEPS:
            return self.tensor(owner, deep + 1)
        if method in ("view", "reshape") or (method in FLATTENS and not call.args):
            if method in FLATTENS or [self.source.code(v) for v in values] == ["-1"]:
                whole = self.tensor(owner, deep + 1)
                return ArrayShape(f"{whole.base}.flat", (self._numel(whole),))
            return self._listed(call, values, deep)
        return None

    def _listed(
        self, call: cst.Call, values: Sequence[cst.BaseExpression], deep: int
    ) -> ArrayShape | None:
        """The tensor of a shape that is listed: `(m, n)`, `m, n`, or `x.shape`."""
        if len(values) == 1:
            only = self.source.resolve(values[0])
            if isinstance(only, cst.Attribute) and only.attr.value == "shape":
                return self.tensor(only.value, deep + 1)
            if isinstance(only, cst.Tuple | cst.List):
                if any(isinstance(e, cst.StarredElement) for e in only.elements):
                    return None
                values = [e.value for e in only.elements]
        base = self._unknown(call).operation
        sizes = [self.size(v, deep + 1) for v in values]
        if ZERO in sizes:
            return None  # `out=` gives it another shape
        dims = [Size(f"{base}.shape[{i}]") if signed_integer(v) == -1 else size
                for i, (v, size) in enumerate(zip(values, sizes, strict=True))]  # fmt: skip
        return ArrayShape(base, tuple(dims)) if values else None

    def _extent(self, tensor: ArrayShape, axis: int) -> Size:
        rank = len(tensor.dims) if tensor.dims is not None else self._ranks_by_base.get(tensor.base)
        if axis < 0 and rank is not None:
            axis += rank
        if tensor.dims is not None and 0 <= axis < len(tensor.dims):
            return tensor.dims[axis]
        return Size(f"{tensor.base}.shape[{axis}]")

    def _numel(self, tensor: ArrayShape) -> Size:
        if tensor.dims is not None:
            whole = ONE
            for extent in tensor.dims:
                whole = product(whole, extent)
            return whole
        if self._ranks_by_base.get(tensor.base) == 1:
            return self._extent(tensor, 0)
        return Size(f"{tensor.base}.numel")

    @cached_property
    def _ranks_by_base(self) -> dict[str, int]:
        """Base -> dimensions: an array that the kernel indexes by two indices has two."""
        found = {}
        for name, rank in self.ranks.items():
            given = self.launch.arguments.get(name) if self.launch is not None else None
            tensor = self._plain.tensor(given) if given is not None else None
            if tensor is not None and tensor.dims is None:
                found[self._canonical(tensor.base)] = rank
        return found

    @cached_property
    def _plain(self) -> Sizes:
        """What the code tells without ranks and assertions, which are read by means of it."""
        return replace(self, ranks={}, believes=False)

    # --- what the host code checks --------------------------------------------------------------

    @cached_property
    def _same(self) -> dict[str, str]:
        """Base -> the base it shares its shape with, by `assert x.shape == y.shape`."""
        same: dict[str, str] = {}
        for left, operator, right in self._comparisons():
            owners = (_shape_owner(left), _shape_owner(right))
            if isinstance(operator, cst.Equal) and owners[0] is not None and owners[1] is not None:
                first, second = (self._plain.tensor(o).base for o in owners if o is not None)
                root = same.get(first, first)
                gone = same.get(second, second)
                same |= {base: root for base, to in same.items() if to == gone} | {gone: root}
        return same

    @cached_property
    def _asserted(self) -> frozenset[tuple[Size, Size]]:
        """Pairs of sizes of which the host code makes sure that the first is not the larger."""
        found = set()
        for left, operator, right in self._comparisons():
            pair = (self.size(left), self.size(right))
            if isinstance(operator, cst.LessThanEqual | cst.LessThan | cst.Equal):
                found.add(pair)
            if isinstance(operator, cst.GreaterThanEqual | cst.GreaterThan | cst.Equal):
                found.add(pair[::-1])
        return frozenset(found)

    def _comparisons(
        self,
    ) -> Iterator[tuple[cst.BaseExpression, cst.BaseCompOp, cst.BaseExpression]]:
        """What holds at the launch: asserted before it, at the same level as it or around it."""
        if self.launch is None or self.launch.function is None or not self.believes:
            return
        child: cst.CSTNode = self.launch.node
        for parent in self.source.ancestors(self.launch.node):
            if isinstance(parent, cst.IndentedBlock):
                for statement in parent.body[: parent.body.index(child)]:
                    if isinstance(statement, cst.SimpleStatementLine):
                        for small in statement.body:
                            if isinstance(small, cst.Assert):
                                yield from _conjuncts(small.test)
            if parent is self.launch.function.node:
                return
            child = parent

    # --- parts of an expression -----------------------------------------------------------------

    def _of_name(self, name: cst.Name, deep: int) -> Size:
        found = definition(self.source, name.value, name)
        if found is None:
            return self._unknown(name)
        if isinstance(found.node, cst.Param):
            given = self._given(found.node)
            if given is not None:
                return self.size(given, deep + 1)
        elif not isinstance(found.node, cst.For) and found.value is not None:
            if found.index is None:
                return self.size(found.value, deep + 1)
            element = self._of_element(found, deep)
            if element is not None:
                return element
        return Size(self._leaf(name, found))

    def _of_element(self, found: Definition, deep: int) -> Size | None:
        """One of `m, n = x.shape`."""
        value, index = found.value, found.index
        if isinstance(value, cst.Call) and not value.args:
            value = value.func  # x.size()
        is_shape = isinstance(value, cst.Attribute) and value.attr.value in ("shape", "size")
        if not is_shape or not isinstance(value, cst.Attribute) or index is None:
            return None
        return self.extent(value.value, index, deep + 1)

    def _of_operation(self, node: cst.BinaryOperation, deep: int) -> Size:
        division = rounded_up(self.source, node)
        if division is not None:
            return cdiv(*(self.size(side, deep + 1) for side in division))
        left, right = self.size(node.left, deep + 1), self.size(node.right, deep + 1)
        match node.operator:
            case cst.Add():
                return commutative("+", left, right)
            case cst.Multiply():
                return product(left, right)
            case cst.Subtract():
                return Size("-", (left, right))
            case cst.FloorDivide():
                return Size("//", (left, right))
            case cst.Modulo():
                return Size("%", (left, right))
        return self._unknown(node)

    def _of_call(self, call: cst.Call, deep: int) -> Size:
        called = self.source.name(call.func) or ""
        values = positional(call)
        if (called in CDIVS or called.endswith(".cdiv") or called == "cdiv") and len(values) == 2:
            return cdiv(*(self.size(v, deep + 1) for v in values))
        if called == f"{CT}num_tiles":
            array, axis, shape = (
                argument(call, i, n) for i, n in enumerate(("array", "axis", "shape"))
            )
            order = argument(call, 3, "order")
            if array is not None and isinstance(axis, cst.Integer) and order is None:
                edge = _element(self.source, shape, axis.evaluated_value)
                if edge is not None:
                    extent = self.extent(array, axis.evaluated_value, deep + 1)
                    return cdiv(extent, self.size(edge, deep + 1))
        if called == f"{CT}num_blocks" and values and isinstance(values[0], cst.Integer):
            return self.grid(values[0].evaluated_value) or self._unknown(call)
        if called == "math.ceil" and len(values) == 1:
            match values[0]:
                case cst.BinaryOperation(left=left, operator=cst.Divide(), right=right):
                    return cdiv(self.size(left, deep + 1), self.size(right, deep + 1))
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "numel":
            return self._numel(self.tensor(call.func.value, deep + 1))
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "size":
            axis = values[0] if values else None
            index = signed_integer(axis) if axis is not None else None
            if index is not None:
                return self.extent(call.func.value, index, deep + 1)
        return self._unknown(call)

    def _given(self, parameter: cst.Param) -> cst.BaseExpression | None:
        """What the launch gives a parameter of the kernel."""
        if self.launch is None or not any(p is parameter for p in self.kernel.function.parameters):
            return None
        return self.launch.arguments.get(parameter.name.value)

    def _canonical(self, base: str) -> str:
        return self._same.get(base, base)

    def _leaf(self, name: cst.Name, found: Definition) -> str:
        return f"{name.value}@{self.source.line(found.node)}"

    def _unknown(self, node: cst.CSTNode) -> Size:
        return Size(f"?{id(node)}")


def _conjuncts(
    test: cst.BaseExpression,
) -> Iterator[tuple[cst.BaseExpression, cst.BaseCompOp, cst.BaseExpression]]:
    """The comparisons that an assertion consists of: `a <= b <= c and d == e`."""
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        yield from _conjuncts(test.left)
        yield from _conjuncts(test.right)
    if isinstance(test, cst.Comparison):
        left = test.left
        for target in test.comparisons:
            yield left, target.operator, target.comparator
            left = target.comparator


def _shape_owner(expression: cst.BaseExpression) -> cst.BaseExpression | None:
    if isinstance(expression, cst.Attribute) and expression.attr.value == "shape":
        return expression.value
    return None


def _axis(subscript: cst.Subscript) -> int | None:
    if len(subscript.slice) == 1 and isinstance(subscript.slice[0].slice, cst.Index):
        return signed_integer(subscript.slice[0].slice.value)
    return None


def _element(
    source: Source, shape: cst.BaseExpression | None, index: int
) -> cst.BaseExpression | None:
    """One element of a shape; a shape of one dimension may be a bare integer."""
    value = source.resolve(shape) if shape is not None else None
    if isinstance(value, cst.Tuple | cst.List):
        return value.elements[index].value if index < len(value.elements) else None
    return value if index == 0 else None
