"""Static shapes of the tiles of a cuTile kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import libcst as cst

from agent.analysis.common.index_runs import NotRegular
from agent.analysis.common.reaching_definitions import definition, value_of
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.index_ranges import is_scalar, run_of, same_constant
from agent.syntax import Source, argument, keyword, positional

Edges: TypeAlias = tuple[cst.BaseExpression, ...]

SHAPED = {f"{CT}load": 2, f"{CT}full": 0, f"{CT}ones": 0, f"{CT}reshape": 1, f"{CT}zeros": 0}
"""What says the shape of its result -> where."""
METHODS = {name: f"{CT}{name}" for name in ("astype", "reshape")}
"""Methods of a tile that are functions too."""
REDUCTIONS = tuple(f"{CT}{name}" for name in ("max", "min", "prod", "sum"))
ELEMENTWISE = frozenset((*CUTILE.arithmetic, f"{CT}astype", f"{CT}where"))
_DEEP = 30


def edges_of(source: Source, expression: cst.BaseExpression, deep: int = 0) -> Edges | None:
    """The edges of a tile, none for a scalar; None where the code does not tell."""
    expression = value_of(source, expression)
    if deep > _DEEP:
        return None
    match expression:
        case cst.Float():
            return ()
        case cst.Name():
            return () if _is_argument(source, expression) else None
        case cst.UnaryOperation(expression=inner):
            return edges_of(source, inner, deep + 1)
        case cst.BinaryOperation(operator=operator, left=left, right=right):
            if isinstance(operator, cst.MatrixMultiply):
                return None
            return _broadcast(source, (left, right), deep)
        case cst.Comparison(left=left, comparisons=[target]):
            return _broadcast(source, (left, target.comparator), deep)
        case cst.Subscript() if not is_scalar(source, expression):
            return _of_run(source, expression)
        case cst.Call():
            return _of_call(source, expression, deep)
    return () if is_scalar(source, expression) else None


def _of_run(source: Source, expression: cst.BaseExpression) -> Edges | None:
    """Of `offsets[None, :]`."""
    try:
        run = run_of(source, expression)
    except NotRegular:
        return None
    edges: list[cst.BaseExpression] = [cst.Integer("1")] * run.rank
    if run.length is not None:
        edges[run.rank - 1 - run.place] = run.length
    return tuple(edges)


def _of_call(source: Source, call: cst.Call, deep: int) -> Edges | None:
    called = source.name(call.func) or ""
    if isinstance(call.func, cst.Attribute) and called not in METHODS.values():
        owner, method = call.func.value, METHODS.get(call.func.attr.value)
        if method == f"{CT}astype":
            return edges_of(source, owner, deep + 1)
        if method == f"{CT}reshape":
            return _written(source, argument(call, 0, "shape"))
    if called in CUTILE.dots:
        acc = argument(call, 2, "acc")
        return edges_of(source, acc, deep + 1) if acc is not None else None
    if called in SHAPED:
        return _written(source, argument(call, SHAPED[called], "shape"))
    if called in REDUCTIONS:
        return _reduced(source, call, deep)
    if called in ELEMENTWISE:
        given = positional(call)
        return _broadcast(source, given[:1] if called == f"{CT}astype" else given, deep)
    if called in CUTILE.iotas:
        return _of_run(source, call)
    return () if is_scalar(source, call) else None


def _written(source: Source, shape: cst.BaseExpression | None) -> Edges | None:
    listed = value_of(source, shape) if shape is not None else None
    if isinstance(listed, cst.Tuple | cst.List):
        return tuple(element.value for element in listed.elements)
    return (shape,) if shape is not None and is_scalar(source, shape) else None


def _reduced(source: Source, call: cst.Call, deep: int) -> Edges | None:
    given, axis = positional(call), argument(call, 1, "axis")
    edges = edges_of(source, given[0], deep + 1) if given else None
    if edges is None or not isinstance(axis, cst.Integer) or axis.evaluated_value >= len(edges):
        return None
    place, keeps = axis.evaluated_value, keyword(call, "keepdims")
    if keeps is not None and source.code(keeps) not in ("True", "False"):
        return None
    kept: Edges = (cst.Integer("1"),) if keeps is not None and source.code(keeps) == "True" else ()
    return (*edges[:place], *kept, *edges[place + 1 :])


def _broadcast(source: Source, operands: Sequence[cst.BaseExpression], deep: int) -> Edges | None:
    whole: Edges | None = ()
    for operand in operands:
        edges = edges_of(source, operand, deep + 1)
        if whole is None or edges is None:
            return None
        whole = _together(source, whole, edges)
    return whole


def _together(source: Source, one: Edges, other: Edges) -> Edges | None:
    """Two shapes broadcast against each other: the last edges belong together."""
    if len(one) < len(other):
        one, other = other, one
    edges = list(one)
    for i, edge in enumerate(other, start=len(one) - len(other)):
        if source.code(edges[i]) == "1":
            edges[i] = edge
        elif source.code(edge) != "1" and not same_constant(source, edges[i], edge):
            return None
    return tuple(edges)


def _is_argument(source: Source, name: cst.Name) -> bool:
    """Whether a name is a parameter, which is no tile, or the variable of a loop over a range."""
    found = definition(source, name.value, name)
    return found is not None and isinstance(found.node, cst.Param | cst.For)
