"""How a cuTile kernel, with the helpers it calls, uses its parameters.

An array is what is loaded from or stored to, or asked for its shape; an index counts its
dimensions. A scalar is an integer where it ends up in an index, and a float where it is computed
with together with what was loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from agent.analysis.common.dialect import Kernel, given_to
from agent.analysis.cutile.dialect import ATOMICS, CT, CUTILE
from agent.syntax import Function, Source, argument, assigned, children, descendants, positional

ATOMIC = (*ATOMICS, f"{CT}atomic_cas")
BITWISE = tuple(f"{CT}atomic_{name}" for name in ("and", "or", "xor", "cas"))
ACCESSES = (*CUTILE.loads, *CUTILE.stores, f"{CT}num_tiles")
INDICES = ((1, "index"), (1, "indices"))
ATTRIBUTES = ("dtype", "ndim", "shape", "strides", "slice", "tiled_view")
VIEWS = ("slice", "tiled_view")
"""Methods of an array that give another one, or a view of it with as many dimensions."""


class Uses:
    """What a kernel does with its parameters, by their names."""

    def __init__(self, source: Source, kernel: Kernel) -> None:
        """Read the kernel and all it calls."""
        self._source = source
        self._functions = CUTILE.reached(source, kernel)
        self._names: dict[str, dict[str, str]] = {f.name: {} for f in self._functions}
        """Function -> its local name -> the parameter of the kernel that this is at first."""
        self._also: dict[str, dict[str, set[str]]] = {f.name: {} for f in self._functions}
        """Function -> its local name -> those that it is in other calls of the function."""
        self._holds: dict[str, dict[str, frozenset[str]]] = {f.name: {} for f in self._functions}
        """Function -> its local name -> the parameters whose values went into it."""
        self.arrays: set[str] = set()
        self.lists: set[str] = set()
        self.loaded: set[str] = set()
        self.stored: set[str] = set()
        self.stores_elsewhere = False
        """It stores to an array of which nobody can say which parameter that is."""
        self.integers: set[str] = set()
        """Scalars, and arrays by their elements, that serve as integers."""
        self.floats: set[str] = set()
        self.multiplies = False
        self.tile_dimensions: dict[str, set[str]] = {}
        """Parameter in a tile's shape -> where: 'alone', or beside others 'last' or 'outer'."""
        self._exact: dict[str, int] = {}
        self._least: dict[str, int] = {}
        parameters = [p.name.value for p in kernel.function.parameters]
        self._names[kernel.name] = {name: name for name in parameters}
        for _ in self._functions:  # a helper may be called by another that is read after it
            for function in self._functions:
                self._follow_names(function)
        for function in self._functions:
            self._read_accesses(function)
            self._read_attributes(function)
            self._read_shapes(function)
        for function in self._functions:
            self._follow_values(function)
            self._read_values(function)
        self.floats -= self.integers

    def ndim(self, name: str) -> int | None:
        """The dimensions of an array: by an index, or at least those it is asked the extent of."""
        return self._exact.get(name) or self._least.get(name)

    # --- which parameter a name is --------------------------------------------------------------

    def _follow_names(self, function: Function) -> None:
        for target, value in assigned(function.node.body):
            if isinstance(target, cst.Name):
                self._name(function, target.value, self._roots(function, value))
        for call in descendants(function.node.body, cst.Call):
            helper = self._source.function_of(call.func)
            if helper is None or helper.name not in self._names or helper is function:
                continue
            for name, value in given_to(helper, call).items():
                self._name(helper, name, self._roots(function, value))

    def _name(self, function: Function, name: str, found: Sequence[str]) -> None:
        if found:
            first = self._names[function.name].setdefault(name, found[0])
            self._also[function.name].setdefault(name, set()).update({*found} - {first})

    def _roots(self, function: Function, expression: cst.BaseExpression) -> tuple[str, ...]:
        """All parameters that an expression may be: a helper may be given one or another."""
        first = self._root(function, expression)
        if first is None:
            return ()
        owner = expression
        while not isinstance(owner, cst.Name):  # as `_root` has come to it
            inner = owner.func if isinstance(owner, cst.Call) else owner
            assert isinstance(inner, cst.Subscript | cst.Attribute)
            owner = inner.value
        others = self._also[function.name].get(owner.value, set()) - {first}
        if first in self.lists:
            self.lists |= others
        return first, *sorted(others)

    def _root(self, function: Function, expression: cst.BaseExpression) -> str | None:
        """The parameter an expression is: itself, an element of it when a list, or a view of it."""
        match expression:
            case cst.Name():
                return self._names[function.name].get(expression.value)
            case cst.Subscript():
                found = self._root(function, expression.value)
                if found is not None:
                    self.lists.add(found)
                return found
            case cst.Call(func=cst.Attribute(value=owner, attr=cst.Name(value=method))) if (
                method in VIEWS
            ):
                return self._root(function, owner)
        return None

    # --- arrays ---------------------------------------------------------------------------------

    def _read_accesses(self, function: Function) -> None:
        for call in descendants(function.node.body, cst.Call):
            called = CUTILE.called(self._source, call) or ""
            self.multiplies |= called in CUTILE.dots
            first = argument(call, 0, "array")
            if called in ACCESSES and first is not None:
                found = self._roots(function, first)
                tuples = [argument(call, *place) for place in (*INDICES, (2, "shape"))]
                if called in CUTILE.stores:
                    tuples = tuples[:2]
            elif isinstance(call.func, cst.Attribute):
                method = call.func.attr.value
                found = self._roots(function, call.func.value)
                if method not in ("load", "store", "tiled_view"):
                    continue
                called = f"{CT}{method}"
                tuples = [argument(call, 0, "tile_shape" if method == "tiled_view" else "index")]
            else:
                continue
            if not found:
                self.stores_elsewhere |= called in CUTILE.stores
                continue
            self.arrays.update(found)
            if called in CUTILE.loads or called in ATOMIC:
                self.loaded.update(found)
            if called in CUTILE.stores:
                self.stored.update(found)
            if called in BITWISE:
                self.integers.update(found)
            if called == f"{CT}num_tiles":
                tuples = tuples[2:]
            for value in tuples:
                length = self._length(function, value) if value is not None else None
                if length is not None:
                    for name in found:
                        self._exact.setdefault(name, length)

    def _length(self, function: Function, expression: cst.BaseExpression) -> int | None:
        """How many indices an expression is; None when it is handed in or computed."""
        value = self._source.resolve(expression)
        if isinstance(value, cst.Tuple | cst.List):
            starred = any(isinstance(e, cst.StarredElement) for e in value.elements)
            return None if starred else len(value.elements)
        if isinstance(value, cst.Name):
            given = [v for t, v in assigned(function.node.body)
                     if isinstance(t, cst.Name) and t.value == value.value]  # fmt: skip
            lengths = [len(v.elements) for v in given if isinstance(v, cst.Tuple | cst.List)]
            return lengths[0] if lengths else 1 if given else None
        return 1

    def _read_attributes(self, function: Function) -> None:
        body = function.node.body
        for attribute in descendants(body, cst.Attribute):
            name = self._root(function, attribute.value)
            if name is not None and attribute.attr.value in ATTRIBUTES:
                self.arrays.add(name)
        for subscript in descendants(body, cst.Subscript):
            name = self._shape_of(function, subscript.value)
            inner = subscript.slice[0].slice
            if name is not None and isinstance(inner, cst.Index):
                axis = inner.value
                if isinstance(axis, cst.Integer):
                    least = axis.evaluated_value + 1
                    self._least[name] = max(self._least.get(name, 0), least)
        for target, value in assigned(body):
            name = self._shape_of(function, value)
            if name is not None and isinstance(target, cst.Tuple):
                self._exact.setdefault(name, len(target.elements))

    def _shape_of(self, function: Function, expression: cst.BaseExpression) -> str | None:
        """The array whose `shape` or `strides` an expression is."""
        if isinstance(expression, cst.Attribute) and expression.attr.value in ("shape", "strides"):
            return self._root(function, expression.value)
        return None

    def _read_shapes(self, function: Function) -> None:
        self.multiplies |= any(
            isinstance(b.operator, cst.MatrixMultiply)
            for b in descendants(function.node.body, cst.BinaryOperation)
        )
        for call in descendants(function.node.body, cst.Call):
            taken = CUTILE.shapes.get(CUTILE.called(self._source, call) or "")
            shape = taken.of(call) if taken is not None else None
            if shape is None and isinstance(call.func, cst.Attribute):
                is_shape = call.func.attr.value in ("tiled_view", "reshape")
                shape = argument(call, 0, "tile_shape") if is_shape else None
            if shape is None:
                continue
            shape = self._source.resolve(shape)
            elements = shape.elements if isinstance(shape, cst.Tuple | cst.List) else ()
            values = [e.value for e in elements] or [shape]
            for position, value in enumerate(values):
                place = "last" if position == len(values) - 1 else "outer"
                for found in descendants(self._source.resolve(value), cst.Name):
                    name = self._names[function.name].get(found.value)
                    if name is not None:
                        places = self.tile_dimensions.setdefault(name, set())
                        places.add(place if len(values) > 1 else "alone")

    # --- values ---------------------------------------------------------------------------------

    def _follow_values(self, function: Function) -> None:
        """Note which parameters' values each local name holds, until nothing more is found."""
        holds = self._holds[function.name]
        before = -1
        while before != (now := sum(len(names) for names in holds.values())):
            before = now
            for target, value in assigned(function.node.body):
                carried = self._carried(function, value)
                for name in descendants(target, cst.Name) if carried else ():
                    holds[name.value] = holds.get(name.value, frozenset()) | carried

    def _carried(self, function: Function, node: cst.CSTNode) -> frozenset[str]:
        """The parameters whose values go into an expression; a comparison only chooses."""
        match node:
            case cst.Comparison() | cst.Attribute():
                return frozenset()
            case cst.Name():
                held = self._holds[function.name].get(node.value, frozenset())
                name = self._names[function.name].get(node.value)
                is_scalar = name is not None and name not in self.arrays
                return held | {name} if is_scalar and name else held
            case cst.Call():
                called = CUTILE.called(self._source, node) or ""
                first = argument(node, 0, "array")
                if called in (*CUTILE.loads, *ATOMIC) and first is not None:
                    name = self._root(function, first)
                    return frozenset({name} if name is not None else ())
                inside: list[cst.CSTNode] = [a.value for a in node.args]
                if isinstance(node.func, cst.Attribute):
                    inside.append(node.func.value)
                return frozenset().union(*(self._carried(function, n) for n in inside))
        return frozenset().union(*(self._carried(function, child) for child in children(node)))

    def _read_values(self, function: Function) -> None:
        for expression in self._indices(function):
            self.integers |= self._carried(function, expression)
        for node in descendants(function.node.body, cst.Comparison):
            sides = [node.left, *(c.comparator for c in node.comparisons)]
            carried = [self._carried(function, side) for side in sides]
            if not any(c & self.arrays for c in carried) and not self._has_float(node):
                self.integers |= frozenset().union(*carried)
        for operation in descendants(function.node.body, cst.BinaryOperation):
            carried = [self._carried(function, s) for s in (operation.left, operation.right)]
            if isinstance(operation.operator, cst.FloorDivide | cst.Modulo):
                self.integers |= carried[0] | carried[1]
            elif self._has_float(operation) or any(c & self.arrays for c in carried):
                self.floats |= (carried[0] | carried[1]) - self.arrays
        for call in descendants(function.node.body, cst.Call):
            if (CUTILE.called(self._source, call) or "") in CUTILE.arithmetic:
                self.floats |= self._carried(function, call) - self.arrays

    def _indices(self, function: Function) -> Iterator[cst.BaseExpression]:
        """What counts elements, tiles or rounds."""
        for call in descendants(function.node.body, cst.Call):
            called = CUTILE.called(self._source, call) or ""
            if called in ACCESSES and called != f"{CT}num_tiles":
                yield from (v for p in INDICES if (v := argument(call, *p)) is not None)
            elif called in CUTILE.ranges:
                yield from positional(call)
            elif isinstance(call.func, cst.Attribute):
                method = call.func.attr.value
                if method == "slice":
                    yield from (a.value for a in call.args)
                elif method in ("load", "store"):
                    yield from positional(call)[:1]

    @staticmethod
    def _has_float(node: cst.CSTNode) -> bool:
        return any(True for _ in descendants(node, cst.Float))
