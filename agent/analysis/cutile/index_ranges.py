"""Index ranges of a cuTile kernel: `block * TILE + ct.arange(TILE)` and its relatives.

Such a run of elements is a tile of the array, so that `ct.load` can fetch it whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import libcst as cst

from agent.analysis.common.index_runs import IndexRange, NotRegular, Run, indexed
from agent.analysis.common.module_names import is_imported
from agent.analysis.common.reaching_definitions import definition, value_of
from agent.analysis.common.resized import resized
from agent.analysis.cutile.names import CT
from agent.syntax import Source, argument, children, descendants, keyword, positional

SCALARS = tuple(f"{CT}{name}" for name in ("assume_divisible_by", "bid", "num_blocks", "num_tiles"))
ARITHMETIC = (
    *("min", "max", "builtins.min", "builtins.max"),
    *(
        f"{CT}{name}"
        for name in ("add", "cdiv", "floordiv", "maximum", "minimum", "mod", "mul", "sub")
    ),
)


def run_of(source: Source, expression: cst.BaseExpression) -> IndexRange:
    """The run that an index expression is. Raises `NotRegular` when it is none."""
    if is_scalar(source, expression):
        return IndexRange(starts=(expression,), rank=0)
    match value_of(source, expression):
        case cst.BinaryOperation(left=left, operator=cst.Add(), right=right):
            return _sum(source, left, right)
        case cst.Subscript() as subscript:
            return indexed(source, subscript, run_of(source, subscript.value))
        case cst.Call() as call:
            return _called(source, call)
    raise NotRegular(f"`{source.code(expression)}` does not count one by one")


def is_scalar(source: Source, expression: cst.BaseExpression, deep: int = 0) -> bool:
    """Whether an expression in a kernel is one integer and no tile."""
    if deep > 20:
        return False
    match expression:
        case cst.Integer():
            return True
        case cst.Name():
            found = definition(source, expression.value, expression)
            if found is None or found.index is not None:
                return False
            if isinstance(found.node, cst.Param | cst.For):
                return True
            return found.value is not None and is_scalar(source, found.value, deep + 1)
        case cst.UnaryOperation(expression=inner):
            return is_scalar(source, inner, deep + 1)
        case cst.BinaryOperation(left=left, right=right):
            return is_scalar(source, left, deep + 1) and is_scalar(source, right, deep + 1)
        case cst.Subscript(value=cst.Attribute(attr=cst.Name(value="shape"))):
            return True
        case cst.Call(func=cst.Attribute(attr=cst.Name(value="item"))):
            return True
        case cst.Call():
            called = source.name(expression.func) or ""
            if called in ARITHMETIC:
                return all(is_scalar(source, a.value, deep + 1) for a in expression.args)
            return called in SCALARS or (
                called == f"{CT}gather" and _is_one_element(source, expression, deep)
            )
    return False


def _is_one_element(source: Source, call: cst.Call, deep: int) -> bool:
    """Whether a gather has single indices, and no mask that is a tile."""
    indices, mask = argument(call, 1, "indices"), keyword(call, "mask")
    listed = value_of(source, indices) if indices is not None else None
    if listed is None or mask is not None:
        return False
    several = [e.value for e in listed.elements] if isinstance(listed, cst.Tuple) else [listed]
    return all(is_scalar(source, index, deep + 1) for index in several)


def steps(
    source: Source, expression: cst.BaseExpression, length: cst.BaseExpression
) -> cst.BaseExpression | None:
    """`i` of a start `i * TILE` in tiles of that length; None when it is no multiple."""
    match value_of(source, expression):
        case cst.BinaryOperation(left=left, operator=cst.Multiply(), right=right):
            factors = (left, right)
        case cst.Call(args=[cst.Arg(value=left), cst.Arg(value=right)]) as call if (
            source.name(call.func) == f"{CT}mul"
        ):
            factors = (left, right)
        case cst.Integer() as number if number.evaluated_value == 0:
            return number
        case _:
            return None
    for one, other in (factors, factors[::-1]):
        if same_constant(source, one, length):
            return other
    return None


def same_constant(source: Source, one: cst.BaseExpression, other: cst.BaseExpression) -> bool:
    """Whether two expressions are the same compile-time constant."""
    one, other = value_of(source, one), value_of(source, other)
    if isinstance(one, cst.Integer) and isinstance(other, cst.Integer):
        return one.evaluated_value == other.evaluated_value
    if isinstance(one, cst.Name) and isinstance(other, cst.Name):
        found = definition(source, one.value, one)
        return (
            one.value == other.value
            and found == definition(source, other.value, other)
            and (found is None or isinstance(found.node, cst.Param))
        )
    return False


def _sum(source: Source, left: cst.BaseExpression, right: cst.BaseExpression) -> IndexRange:
    one, other = run_of(source, left), run_of(source, right)
    starts = (*one.starts, *other.starts)
    if other.length is None:
        one, other = other, one
    if one.length is not None:
        raise NotRegular("it adds two tiles of indices")
    return replace(other, starts=starts)


def _called(source: Source, call: cst.Call) -> IndexRange:
    called = source.name(call.func) or ""
    if called == f"{CT}arange":
        length = argument(call, 0, "size")
        if length is None or keyword(call, "start") or keyword(call, "step"):
            raise NotRegular("ct.arange has a start or step of its own")
        return IndexRange(starts=(), length=length)
    if called == f"{CT}add":
        values = positional(call)
        if len(values) == 2:
            return _sum(source, *values)
    if called == f"{CT}full":
        value, shape = argument(call, 1, "fill_value"), argument(call, 0, "shape")
        if value is not None and is_scalar(source, value) and _has_one_dimension(shape):
            return IndexRange(starts=(value,), rank=0)
    if called == f"{CT}astype":
        _check_whole(source, argument(call, 1, "dtype"))
        return run_of(source, positional(call)[0])
    if called == f"{CT}expand_dims":
        axis = argument(call, 1, "axis")
        if isinstance(axis, cst.Integer):
            return expanded(run_of(source, positional(call)[0]), axis.evaluated_value)
    if called == f"{CT}reshape":
        run = run_of(source, positional(call)[0])
        return reshaped(source, argument(call, 1, "shape"), run)
    if isinstance(call.func, cst.Attribute) and not called.startswith(CT):
        owner, method = call.func.value, call.func.attr.value
        if method == "astype":
            _check_whole(source, argument(call, 0, "dtype"))
            return run_of(source, owner)
        if method == "reshape":
            return reshaped(source, argument(call, 0, "shape"), run_of(source, owner))
    raise NotRegular(f"`{source.code(call)}` does not count one by one")


def _check_whole(source: Source, dtype: cst.BaseExpression | None) -> None:
    """Raise `NotRegular` for a cast to a type without room for every number of an element."""
    if dtype is None or source.name(dtype) not in (f"{CT}int32", f"{CT}int64"):
        raise NotRegular("it is cast to another type than int32 and int64")


def is_pure(source: Source, expression: cst.BaseExpression) -> bool:
    """Whether a number may be computed once more: it reads no memory, and changes none."""
    return all(
        source.name(call.func) in (*SCALARS, *ARITHMETIC)
        or (isinstance(call.func, cst.Attribute) and call.func.attr.value == "item")
        for call in descendants(expression, cst.Call)
    )


def _has_one_dimension(shape: cst.BaseExpression | None) -> bool:
    return isinstance(shape, cst.Tuple | cst.List) and len(shape.elements) == 1


def expanded(run: Run, axis: int) -> Run:
    """`ct.expand_dims(offsets, axis)`."""
    if run.length is None or axis > run.rank:
        raise NotRegular("ct.expand_dims adds a dimension to no run")
    before = axis <= run.rank - 1 - run.place
    return replace(run, rank=run.rank + 1, place=run.place + (not before))


def reshaped(source: Source, shape: cst.BaseExpression | None, run: Run) -> Run:
    """`ct.reshape(offsets, (1, TILE))`."""
    if isinstance(shape, cst.Tuple | cst.List) and run.length is not None:
        edges = [e.value for e in shape.elements]
        long = [i for i, e in enumerate(edges) if source.code(e) != "1"]
        if len(long) == 1 and same_constant(source, edges[long[0]], run.length):
            return replace(run, rank=len(edges), place=len(edges) - 1 - long[0])
    raise NotRegular("ct.reshape does not only add dimensions of one")


def holds_at(source: Source, expression: cst.BaseExpression, place: cst.CSTNode) -> bool:
    """Whether an expression written at another place of the kernel has the same value there."""
    if (source.name(expression) or "").startswith((CT, "builtins.")):
        return True
    if isinstance(expression, cst.Name):
        found = definition(source, expression.value, expression)
        if found is None and is_imported(source, expression):
            return True
        is_same = found is not None and found == definition(source, expression.value, place)
        return is_same and expression.value not in resized(source)
    if isinstance(expression, cst.Attribute):
        return holds_at(source, expression.value, place)
    return all(holds_at(source, child, place) for child in _expressions(expression))


def _expressions(node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """The expressions right below a node, through arguments and elements; no keyword's name."""
    for child in children(node):
        if isinstance(child, cst.Arg):
            yield child.value
        elif isinstance(child, cst.BaseExpression):
            yield child
        else:
            yield from _expressions(child)
