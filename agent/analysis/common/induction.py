"""Induction variables: names that go on by the same in each round of a loop."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from agent.analysis.common.constant_flow import Flow
from agent.analysis.common.derived_names import reaches
from agent.syntax import argument, assigned, assigned_each, descendants, names_in

_ADVANCE = "advance"
"""Moves a pointer to a block by an offset along each axis."""


def induction_variables(flow: Flow, loop: cst.For) -> set[str]:
    """The names that go on by the same in each round, whatever the size of a block."""
    written = [*_written(loop)]
    changing = {name for name, _ in written}
    shared = _shared(flow, loop, written)
    found = set()
    for step in descendants(loop.body, cst.AugAssign):
        plain = isinstance(step.target, cst.Name) and isinstance(
            step.operator, cst.AddAssign | cst.SubtractAssign
        )
        if plain and _is_same(flow, step.value, changing - shared):
            assert isinstance(step.target, cst.Name)
            if not _begins_anew(flow, step.target.value, step, loop):
                found.add(step.target.value)
    for name, value in written:
        added = _added(flow, name, _behind(value, written))
        if (
            added is not None
            and _is_same(flow, added, changing - shared)
            and not _begins_anew(flow, name, value, loop)
        ):
            found.add(name)
    return found


def _written(loop: cst.For) -> Iterator[tuple[str, cst.BaseExpression]]:
    """Names and what a round assigns to them, element by element where both are tuples."""
    for target, value in assigned_each(loop.body):
        for name in descendants(target, cst.Name):
            yield name.value, value


def _shared(flow: Flow, loop: cst.For, written: list[tuple[str, cst.BaseExpression]]) -> set[str]:
    """The names that a round assigns the same as every other round."""
    once = {n: v for n, v in written if sum(n == other for other, _ in written) == 1}
    augmented = {id(step.value) for step in descendants(loop.body, cst.AugAssign)}
    counters = {
        name.value
        for each in (loop, *descendants(loop.body, cst.For))
        for name in descendants(each.target, cst.Name)
    }
    changing = {name for name, _ in written} | counters
    while True:
        found = {
            name
            for name, value in once.items()
            if name in changing - counters
            and id(value) not in augmented
            and _is_same(flow, value, changing)
        }
        if not found:
            return {name for name in once if name not in changing}
        changing -= found


def _is_same(flow: Flow, node: cst.BaseExpression, changing: set[str]) -> bool:
    """Whether a value is the same in each round, and not computed from the size."""
    atomics = flow.find(node, flow.dialect.stores)
    return (
        not flow.carries(node)
        and all(name.value not in changing for name in descendants(node, cst.Name))
        and not any(True for _ in atomics)
    )


def _behind(
    value: cst.BaseExpression, written: list[tuple[str, cst.BaseExpression]]
) -> cst.BaseExpression:
    """What is behind a name that the round assigns once: `after` of `after = i + 1; i = after`."""
    for _ in written:
        values = [v for n, v in written if isinstance(value, cst.Name) and n == value.value]
        if len(values) != 1:
            break
        value = values[0]
    return value


def _added(flow: Flow, name: str, value: cst.BaseExpression) -> cst.BaseExpression | None:
    """What a value adds to a name, or takes off it."""
    match value:
        case cst.BinaryOperation(operator=cst.Add(), left=left, right=right):
            for own, other in ((left, right), (right, left)):
                if isinstance(own, cst.Name) and own.value == name:
                    return other
        case cst.BinaryOperation(operator=cst.Subtract(), left=cst.Name(value=own), right=right):
            return right if own == name else None
        case cst.Call():
            called = flow.called(value).rpartition(".")[2]
            moved = argument(value, 0, "base")
            if called == _ADVANCE and isinstance(moved, cst.Name) and moved.value == name:
                return argument(value, 1, "offsets")
    return None


def _begins_anew(flow: Flow, name: str, step: cst.CSTNode, loop: cst.For) -> bool:
    """Whether each round first gives a name a value of its own: `at = start + ...; at += 1`."""
    inner = step
    for around in flow.source.ancestors(step):
        lines = around.body if isinstance(around, cst.IndentedBlock) else ()
        for line in lines:
            if line is inner:
                break
            if not isinstance(line, cst.SimpleStatementLine):
                continue
            augmented = {id(each.value) for each in descendants(line, cst.AugAssign)}
            for target, value in assigned(line):
                named = name in names_in(target)
                own = name in names_in(value)
                if named and not own and id(value) not in augmented:
                    return not reaches(name, [value], [*_written(loop)])
        if around is loop.body:
            return False
        inner = around
    return False
