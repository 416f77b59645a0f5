"""Which parameters of a function are pointers, told by what is done with them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import libcst as cst

from agent.analysis.common.dialect import given_to
from agent.analysis.triton.dialect import POINTER_ATOMICS
from agent.porting.context import TL
from agent.syntax import Function, Source, argument, assigned, descendants

ACCESSES = (f"{TL}load", f"{TL}store", *POINTER_ATOMICS)
TRANSPARENT = tuple(f"{TL}{n}" for n in ("multiple_of", "max_contiguous", "max_constancy"))
NUMERIC = (cst.Multiply, cst.Divide, cst.FloorDivide, cst.Modulo, cst.BitAnd, cst.BitOr, cst.Power)


@lru_cache(maxsize=2**10)
def pointers(source: Source, function: Function) -> frozenset[str]:
    """The parameters that hold addresses: those whose sums with offsets are read or written."""
    names = {p.name.value for p in function.parameters}
    numbers = _numbers(source, function)
    values: dict[str, list[cst.BaseExpression]] = {}
    for target, value in assigned(function.node.body):
        if isinstance(target, cst.Name):
            values.setdefault(target.value, []).append(value)
    found = set()
    for address in _addresses(source, function):
        leaves = list(_leaves(source, address, values, set()))
        candidates = [name for name in leaves if name in names and name not in numbers]
        if candidates:
            # Of two that are only added, the one that is named so, or the first, is the pointer.
            # Were it not, the port would stop at its first launch: a number has no memory.
            named = [name for name in candidates if "ptr" in name.lower()]
            found.add((named or candidates)[0])
    typed = {
        name
        for attribute in descendants(function.node.body, cst.Attribute)
        if attribute.attr.value == "element_ty"
        for name in (n.value for n in descendants(attribute, cst.Name))
        if name in names
    }
    return frozenset(found | typed)


def _addresses(source: Source, function: Function) -> Iterator[cst.BaseExpression]:
    for call in descendants(function.node.body, cst.Call):
        named = source.name(call.func)
        if named in ACCESSES:
            found = argument(call, 0, "pointer")
            if found is not None:
                yield found
        elif (helper := source.function_of(call.func)) is not None and helper is not function:
            given = given_to(helper, call)
            yield from (given[name] for name in pointers(source, helper) if name in given)
        elif isinstance(call.func, cst.Attribute) and f"{TL}{call.func.attr.value}" in ACCESSES:
            yield call.func.value


def _leaves(
    source: Source,
    node: cst.BaseExpression,
    values: dict[str, list[cst.BaseExpression]],
    seen: set[str],
) -> Iterator[str]:
    """The names that an address is a sum of."""
    match node:
        case cst.Name():
            yield node.value
            if node.value not in seen:
                seen.add(node.value)
                for value in values.get(node.value, ()):
                    yield from _leaves(source, value, values, seen)
        case cst.BinaryOperation(operator=cst.Add()):
            yield from _leaves(source, node.left, values, seen)
            yield from _leaves(source, node.right, values, seen)
        case cst.BinaryOperation(operator=cst.Subtract()):
            yield from _leaves(source, node.left, values, seen)
        case cst.Subscript():
            yield from _leaves(source, node.value, values, seen)
        case cst.IfExp():
            yield from _leaves(source, node.body, values, seen)
            yield from _leaves(source, node.orelse, values, seen)
        case cst.Call() if source.name(node.func) in TRANSPARENT and node.args:
            yield from _leaves(source, node.args[0].value, values, seen)
        case cst.Call(func=cst.Attribute(attr=cst.Name(value="to"), value=inner)):
            yield from _leaves(source, inner, values, seen)


def _numbers(source: Source, function: Function) -> frozenset[str]:
    """The names that something is computed with that is done to no address."""
    found: set[str] = set()

    def add(node: cst.CSTNode) -> None:
        """The names of an expression, down to calls, which make something else of theirs."""
        left = [node]
        while left:
            here = left.pop()
            if isinstance(here, cst.Name):
                found.add(here.value)
            elif isinstance(here, cst.BinaryOperation):
                left += [here.left, here.right]
            elif isinstance(here, cst.UnaryOperation):
                left.append(here.expression)

    for operation in descendants(function.node.body, cst.BinaryOperation):
        if isinstance(operation.operator, NUMERIC):
            add(operation.left)
            add(operation.right)
    for compared in descendants(function.node.body, cst.Comparison):
        if any(isinstance(c.operator, cst.Is | cst.IsNot) for c in compared.comparisons):
            continue
        add(compared.left)
        for each in compared.comparisons:
            add(each.comparator)
    for parameter in function.parameters:
        if parameter.annotation is not None:
            named = source.name(parameter.annotation.annotation)
            if named in (f"{TL}constexpr", f"{TL}int32", f"{TL}int64", "builtins.int", "int"):
                found.add(parameter.name.value)
    return frozenset(found)
