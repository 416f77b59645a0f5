"""Whether host code may have `None`, or a number, where it gives a tensor."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import libcst as cst

from agent.analysis.common.reaching_definitions import binds, value_of
from agent.syntax import Function, Source, assigned_each, descendants

LEAVING: tuple[type[cst.CSTNode], ...] = (cst.Return, cst.Raise, cst.Continue)


_Kind = Callable[[cst.BaseExpression], bool]
_Asks = Callable[[Source, Function, str], bool]
_SeesTo = Callable[[Source, Function, str, cst.BaseExpression], bool]


def may_be_none(source: Source, value: cst.BaseExpression) -> bool:
    """Whether the file shows that an expression may be `None` where it stands.

    A name is, where its function asks, or takes or assigns it, and does not see to it before.
    """
    return _may_be(source, value, _is_none, _asks_for_none, _seen_to)


def may_be_number(source: Source, value: cst.BaseExpression) -> bool:
    """Whether the file shows that an expression may be a number: by default, or as assigned.

    As with `bias=0`, where another argument tells the kernel that there is none. That a function
    sees to `None` says nothing of numbers: `if bias is None: bias = 0`.
    """
    return _may_be(source, value, _is_number, _never, _never)


def _may_be(
    source: Source,
    value: cst.BaseExpression,
    kind: _Kind,
    asks: _Asks,
    sees_to: _SeesTo,
) -> bool:
    behind = value_of(source, value)
    if isinstance(behind, cst.IfExp):
        return any(
            _may_be(source, each, kind, asks, sees_to) for each in (behind.body, behind.orelse)
        )
    if kind(behind):
        return True
    name = behind if isinstance(behind, cst.Name) else value
    function = source.enclosing(name)
    if not isinstance(name, cst.Name) or function is None:
        return False
    if sees_to(source, function, name.value, value):
        return False
    given = [p.default for p in function.parameters if p.name.value == name.value and p.default]
    for target, assignment in assigned_each(function.node.body):
        if isinstance(target, cst.Name) and target.value == name.value:
            given.append(assignment)
    return any(map(kind, given)) or asks(source, function, name.value)


def _never(*_: object) -> bool:
    return False


def _is_none(value: cst.BaseExpression) -> bool:
    return isinstance(value, cst.Name) and value.value == "None"


def _is_number(value: cst.BaseExpression) -> bool:
    if isinstance(value, cst.UnaryOperation):
        return _is_number(value.expression)
    is_truth = isinstance(value, cst.Name) and value.value in ("True", "False")
    return is_truth or isinstance(value, cst.BaseNumber)


def _asks_for_none(source: Source, function: Function, name: str) -> bool:
    """Whether a function compares a parameter or a name with `None`, or its annotation has it."""
    said = [p.annotation for p in function.parameters if p.name.value == name and p.annotation]
    if any(re.search(r"\b(None|Optional)\b", source.code(each.annotation)) for each in said):
        return True
    tests = {source.code(each) for each in descendants(function.node.body, cst.Comparison)}
    return bool(tests & {f"{name} is None", f"{name} is not None"})


def _seen_to(source: Source, function: Function, name: str, place: cst.BaseExpression) -> bool:
    """Whether every way to a place gives a name another value, or ends, where it is `None`."""
    blocks = [a for a in source.ancestors(place) if isinstance(a, cst.IndentedBlock)]
    line = source.line(place)

    def comes_before(node: cst.CSTNode) -> bool:
        around = (a for a in source.ancestors(node) if isinstance(a, cst.IndentedBlock))
        return source.line(node) < line and next(around, None) in blocks

    for test in descendants(function.node.body, cst.If):
        asked = {source.code(each) for each in _alternatives(test.test)}
        if asked & {f"{name} is None", f"not {name}"} and comes_before(test):
            leaves = any(True for kind in LEAVING for _ in descendants(test.body, kind))
            if leaves or binds(test.body, name):
                return True
    asserted = filter(comes_before, descendants(function.node.body, cst.Assert))
    return any(source.code(each.test) in (f"{name} is not None", name) for each in asserted)


def _alternatives(test: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The parts of `a or b`, each of which is enough."""
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.Or):
        yield from _alternatives(test.left)
        yield from _alternatives(test.right)
    else:
        yield test
