"""Which arrays of a cuTile kernel are as long as its rows, and what it does with that length."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import libcst as cst

from agent.analysis.common.by_program import by_program, names_by_program
from agent.analysis.common.dialect import Kernel
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.index_ranges import same_constant
from agent.analysis.cutile.uses import INDICES
from agent.syntax import Source, argument, assigned, descendants

ACCESSES = (*CUTILE.loads, *CUTILE.stores)
DIVISIONS = (cst.Divide, cst.FloorDivide, cst.Modulo)
PARTIAL = tuple(
    f"{CT}{name}"
    for name in ("cdiv", "exp", "exp2", "floordiv", "log", "log2", "mod", "pow", "rsqrt", "sqrt",
                 "truediv")
)  # fmt: skip
"""Functions that some numbers have no result of, or none that has room."""


def as_long_as_rows(source: Source, kernel: Kernel, rows: Collection[str]) -> frozenset[str]:
    """The arrays that a kernel itself loads, in tiles of a row's length alone, and at the same
    places in every block.

    Args:
        source: the file.
        kernel: one of its kernels.
        rows: the kernel's arrays of two dimensions and more.
    """
    function = kernel.function
    differing = names_by_program(CUTILE, source, function)
    loads: dict[str, list[cst.Call]] = {}
    lengths: list[cst.BaseExpression] = []
    for call in CUTILE.find(source, function.node.body, ACCESSES):
        array = argument(call, 0, "array")
        if not isinstance(array, cst.Name):
            continue
        if array.value in rows:
            lengths += _lengths(source, call)
        elif CUTILE.called(source, call) in CUTILE.loads:
            loads.setdefault(array.value, []).append(call)

    def fits(call: cst.Call) -> bool:
        index = (argument(call, *place) for place in INDICES)
        own = _lengths(source, call)
        return (
            bool(own)
            and all(any(same_constant(source, one, row) for row in lengths) for one in own)
            and not any(i is not None and by_program(CUTILE, source, i, differing) for i in index)
        )

    handed_on = {
        name.value
        for call in descendants(function.node.body, cst.Call)
        if source.function_of(call.func) is not None
        for given in call.args
        for name in descendants(given, cst.Name)
    }
    return frozenset(name for name, calls in loads.items() if all(map(fits, calls))) - handed_on


def _lengths(source: Source, call: cst.Call) -> list[cst.BaseExpression]:
    """The last edge of a tile that is loaded; of a gather, how many elements are counted."""
    shape = argument(call, 2, "shape")
    if shape is not None and source.name(call.func) == f"{CT}load":
        listed = value_of(source, shape)
        if isinstance(listed, cst.Tuple | cst.List):
            return [listed.elements[-1].value] if listed.elements else []
        return [shape]
    given = [argument(call, *place) for place in INDICES]
    found = [index for index in given if index is not None]
    named = [value_of(source, n) for each in found for n in descendants(each, cst.Name)]
    counts = (iota for each in (*found, *named) for iota in CUTILE.find(source, each, CUTILE.iotas))
    return [size for iota in counts if (size := argument(iota, 0, "size")) is not None]


def read_under_conditions(source: Source, kernel: Kernel) -> frozenset[str]:
    """The arrays that a kernel itself reads or writes, and may as well not."""
    body = kernel.function.node.body
    arrays = {
        array.value
        for call in CUTILE.find(source, body, (*ACCESSES, f"{CT}num_tiles"))
        if isinstance(array := argument(call, 0, "array"), cst.Name)
    }
    return frozenset(name for name in arrays if not _accesses(source, body, name))


def _accesses(source: Source, block: cst.CSTNode, array: str) -> bool:
    """Whether statements access an array whichever way an `if` goes."""
    for statement in block.body if isinstance(block, cst.IndentedBlock) else [block]:
        match statement:
            case cst.If(body=body, orelse=other):
                rest = other.body if isinstance(other, cst.Else) else other
                ways = [body, rest] if rest is not None else []
                found = bool(ways) and all(_accesses(source, way, array) for way in ways)
            case cst.For(body=body) | cst.While(body=body) | cst.With(body=body):
                found = _accesses(source, body, array)
                if isinstance(statement, cst.For):
                    found = found or _has(source, statement.iter, array)
            case _:
                found = _has(source, statement, array)
        if found:
            return True
    return False


def _has(source: Source, node: cst.CSTNode, array: str) -> bool:
    return any(
        isinstance(name := argument(call, 0, "array"), cst.Name)
        and name.value == array
        and not any(isinstance(around, cst.IfExp) for around in source.ancestors(call))
        for call in CUTILE.find(source, node, (*ACCESSES, f"{CT}num_tiles"))
    )


def undefined_for_some(source: Source, kernel: Kernel) -> cst.CSTNode | None:
    """A division or a function of what is taken off a length alone, as `1 / (n - 1)`."""
    body = kernel.function.node.body
    lengths = _names_of_lengths(body)
    for division in descendants(body, cst.BinaryOperation):
        is_one = isinstance(division.operator, DIVISIONS)
        if is_one and _shortens(source, division.right, lengths):
            return division
    for call in CUTILE.find(source, body, PARTIAL):
        if any(_shortens(source, each.value, lengths) for each in call.args):
            return call
    return None


def _names_of_lengths(body: cst.CSTNode) -> frozenset[str]:
    """The names that hold what follows from lengths and numbers alone."""
    found: set[str] = set()
    for _ in range(4):
        for target, value in assigned(body):
            if isinstance(target, cst.Name) and _is_of_lengths(value, found):
                found.add(target.value)
    return frozenset(found)


def _is_of_lengths(expression: cst.BaseExpression, names: Collection[str]) -> bool:
    match expression:
        case cst.Subscript(value=cst.Attribute(attr=cst.Name(value="shape"))):
            return True
        case cst.Name(value=name):
            return name in names
        case cst.BinaryOperation(left=left, right=right):
            sides = (left, right)
            return any(_is_of_lengths(s, names) for s in sides) and all(
                isinstance(s, cst.Integer | cst.Float) or _is_of_lengths(s, names) for s in sides
            )
    return False


def _shortens(source: Source, expression: cst.BaseExpression, lengths: Collection[str]) -> bool:
    """Whether a difference of lengths and numbers is a part of an expression."""
    parts = [expression, *(value_of(source, n) for n in _names(expression))]
    return any(
        isinstance(each.operator, cst.Subtract) and _is_of_lengths(each, lengths)
        for part in parts
        for each in descendants(part, cst.BinaryOperation)
    )


def _names(expression: cst.CSTNode) -> Iterator[cst.Name]:
    return descendants(expression, cst.Name)
