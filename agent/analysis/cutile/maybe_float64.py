"""Where a cuTile kernel may hold float64 tiles, of which its text says nothing.

An operation on a float32 tile is one of float32, unless its other operand is float64, as what is
loaded may be: it has the type of the caller's array. What exists for float32 alone has to ask for
the type of such operands, which the compiler knows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property

import libcst as cst

from agent.analysis.common.reaching_definitions import definition
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.element_types import MADE, METHODS, TypesOfFunction
from agent.syntax import argument, assigned, descendants

FLOAT64 = f"{CT}float64"
TYPED = {**MADE, f"{CT}astype": 1, f"{CT}arange": 1}
"""What gives a tile the type that it names -> the position of that."""


class MaybeFloat64(TypesOfFunction):
    """What the text of one function tells of tiles that may be float64."""

    in_circles = True

    def holds(self, expression: cst.BaseExpression) -> bool:
        """Whether an expression is certainly no float64 tile."""
        return self.is_narrow(expression)

    def names(self, expression: cst.BaseExpression) -> tuple[str, ...] | None:
        """The names in an expression that may hold float64 tiles; None where others may.

        If no tile under these names is float64, nor is the expression.
        """
        if self.is_narrow(expression):
            return ()
        if isinstance(expression, cst.Name):
            return (expression.value,)
        found: dict[str, None] = {}
        for part in self._parts(expression):
            named = self.names(part)
            if named is None:
                return None
            found |= dict.fromkeys(named)
        return tuple(found) or None

    def is_narrow(self, node: cst.BaseExpression, seen: frozenset[str] = frozenset()) -> bool:
        """Whether an expression is certainly no float64 tile. A number takes the type of a tile.

        Of a name that is assigned several times, `seen` holds those whose values are looked at.
        """
        match node:
            case cst.Name():
                return node.value in seen or self._is_narrow_name(node, seen)
            case cst.Call():
                return self._is_narrow_call(node, seen)
        return all(self.is_narrow(part, seen) for part in self._parts(node))

    def _parts(self, node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
        """What decides the type of an expression; nothing of what loads or casts."""
        match node:
            case cst.UnaryOperation(expression=inner) | cst.Subscript(value=inner):
                yield inner
            case cst.BinaryOperation(left=one, right=other) | cst.IfExp(body=one, orelse=other):
                yield from (one, other)
            case cst.Call(func=func, args=arguments):
                called = self._source.name(func) or ""
                method = func.attr.value if isinstance(func, cst.Attribute) else ""
                if CUTILE.owns(called):
                    if called not in CUTILE.loads and called not in TYPED:
                        yield from (arg.value for arg in arguments)
                elif isinstance(func, cst.Attribute) and method in METHODS:
                    yield func.value

    def _is_narrow_name(self, name: cst.Name, seen: frozenset[str]) -> bool:
        found = definition(self._source, name.value, name)
        if found is not None and isinstance(found.node, cst.Param):
            return self._is_kernel or self._is_handed_narrow(name.value)
        if found is not None and found.value is not None and found.index is None:
            return isinstance(found.node, cst.For) or self.is_narrow(found.value, seen)
        values = self._values.get(name.value, ())
        return all(self.is_narrow(value, seen | {name.value}) for value in values)

    def _is_narrow_call(self, call: cst.Call, seen: frozenset[str]) -> bool:
        called = self._source.name(call.func) or ""
        if called in TYPED:
            return self._names_narrow(argument(call, TYPED[called], "dtype"))
        if called == f"{CT}mma":  # no products of float64 are summed in another type
            accumulator = argument(call, 2, "acc")
            return accumulator is not None and self.is_narrow(accumulator, seen)
        if (helper := self._source.function_of(call.func)) is not None:
            returned = [node.value for node in descendants(helper.node.body, cst.Return)]
            return all(value is None or self._in(helper, value, helper.name) for value in returned)
        if CUTILE.owns(called):
            return called not in CUTILE.loads and all(
                self.is_narrow(part, seen) for part in self._parts(call)
            )
        if isinstance(call.func, cst.Attribute):
            if call.func.attr.value == "astype":
                return self._names_narrow(argument(call, 0, "dtype"))
            return self.is_narrow(call.func.value, seen)
        return True

    def _is_handed_narrow(self, parameter: str) -> bool:
        """Whether a helper is handed no float64 tile for a parameter by this file."""
        handed = self._handed(parameter)
        return handed is not None and False not in handed

    def _names_narrow(self, dtype: cst.BaseExpression | None) -> bool:
        named = self._source.name(dtype) if dtype is not None else None
        return named is not None and named.startswith(CT) and named != FLOAT64

    @cached_property
    def _values(self) -> Mapping[str, tuple[cst.BaseExpression, ...]]:
        """Local name -> what it may be assigned: of what is unpacked, all of it."""
        found: dict[str, list[cst.BaseExpression]] = {}
        for target, value in assigned(self._function.node.body):
            for name in descendants(target, cst.Name):
                found.setdefault(name.value, []).append(value)
        return {name: tuple(values) for name, values in found.items()}


def unless_float64(tile: str, names: Collection[str]) -> str:
    """The condition that none of the tiles under some names is float64, which a kernel decides
    when it is compiled; `tile` is how the file spells cuda.tile."""
    return " and ".join(f"{name}.dtype != {tile}.float64" for name in names) or "True"
