"""Statements of a Triton kernel that mask a tile, and whether an `if` is there for them alone.

This file may not import the dialect, which asks it.
"""

from __future__ import annotations

from functools import partial

import libcst as cst

from agent.analysis.common.dialect import Dialect
from agent.analysis.common.edge_masks import MaskForm
from agent.analysis.common.edge_tests import NumberReading, asks_for
from agent.analysis.common.index_runs import IndexRange, NotRegular
from agent.analysis.common.numbers import number_of
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.triton.spans import holds_at, is_pure, is_scalar, span_of
from agent.syntax import Source, assigned, descendants, positional

TL = "triton.language."
CHOOSE = f"{TL}where"


def reading(dialect: Dialect) -> NumberReading:
    """How element numbers are read."""
    return NumberReading(partial(_run_of, dialect), holds_at, is_pure)


def is_edge_test(dialect: Dialect, source: Source, line: cst.If) -> bool:
    """Whether an `if` masks a tile of which the mask removes nothing where the test fails."""
    last = line.body.body[-1] if isinstance(line.body, cst.IndentedBlock) else None
    if not isinstance(last, cst.SimpleStatementLine):
        return False
    chosen = [c for c in descendants(last, cst.Call) if source.name(c.func) == CHOOSE]
    form = form_of(dialect, source, last, chosen[0]) if len(chosen) == 1 else None
    if form is None or not form.is_itself(source):
        return False
    return asks_for(source, line, positional(chosen[0])[0], reading(dialect))


def form_of(
    dialect: Dialect, source: Source, line: cst.SimpleStatementLine, call: cst.Call
) -> MaskForm | None:
    """`x = tl.where(mask, kept, number)`, or a statement that adds `tl.where(mask, 0, number)` to
    what it is where nothing is masked; None for any other."""
    given = positional(call)
    if len(given) != 3 or len(call.args) != 3 or not is_number(dialect, source, given[2]):
        return None
    condition, kept, otherwise = call.args
    adds_nothing = number(source, kept.value) == 0
    match line.body:
        case [cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=value)]:
            itself = cst.Name(name)
            if value is call:
                again = call.with_changes(
                    args=[condition, kept.with_changes(value=itself), otherwise]
                )
                return MaskForm(name, kept.value, again)
            match value:
                case cst.BinaryOperation(operator=cst.Add(), right=right) if (
                    right is call and adds_nothing
                ):
                    return MaskForm(name, value.left, value.with_changes(left=itself))
        case [
            cst.AugAssign(target=cst.Name() as itself, operator=cst.AddAssign(), value=value)
        ] if value is call and adds_nothing:
            return MaskForm(itself.value, itself, value)
    return None


def number(source: Source, node: cst.BaseExpression) -> float | None:
    """A number that is written down, here or at the module's level."""
    return number_of(source, value_of(source, node))


def is_number(dialect: Dialect, source: Source, node: cst.BaseExpression) -> bool:
    """Whether an expression is one number, known or not."""
    return number(source, node) is not None or is_scalar(dialect, source, node)


def _run_of(dialect: Dialect, source: Source, expression: cst.BaseExpression) -> IndexRange:
    if is_scalar(dialect, source, expression, strictly=True):
        return IndexRange(starts=(expression,), rank=0)
    span = span_of(dialect, source, expression, strictly=True)
    if span is None:
        raise NotRegular(f"`{source.code(expression)}` does not count one by one")
    length = cst.parse_expression(span.extent)
    if any(_changes(source, expression, name.value) for name in descendants(length, cst.Name)):
        raise NotRegular(f"`{span.extent}` may be another number by then")
    if span.axis is None:
        return IndexRange(starts=span.starts, length=length)
    return IndexRange(starts=span.starts, length=length, place=1 - span.axis, rank=2)


def _changes(source: Source, place: cst.CSTNode, name: str) -> bool:
    """Whether the function around gives a name more values than one."""
    function = source.enclosing(place)
    if function is None:
        return False
    given = sum(parameter.name.value == name for parameter in function.parameters)
    targets = (target for target, _ in assigned(function.node.body))
    return given + sum(isinstance(t, cst.Name) and t.value == name for t in targets) > 1
