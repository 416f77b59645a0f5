"""Whether host code may have `None` where it gives a tensor."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from agent.analysis.common.reaching_definitions import binds, value_of
from agent.syntax import Function, Source, assigned, descendants

LEAVING: tuple[type[cst.CSTNode], ...] = (cst.Return, cst.Raise, cst.Continue)


def may_be_none(source: Source, value: cst.BaseExpression) -> bool:
    """Whether the file shows that an expression may be `None` where it stands.

    A name is, where its function asks, or takes or assigns it, and does not see to it before.
    """
    match behind := value_of(source, value):
        case cst.Name(value="None"):
            return True
        case cst.IfExp(body=one, orelse=other):
            return may_be_none(source, one) or may_be_none(source, other)
    name = behind if isinstance(behind, cst.Name) else value
    function = source.enclosing(name)
    if not isinstance(name, cst.Name) or function is None or _seen_to(source, function, name.value):
        return False
    return any(_signs(source, function, name.value))


def _signs(source: Source, function: Function, name: str) -> Iterator[bool]:
    for parameter in function.parameters:
        if parameter.name.value == name:
            yield parameter.default is not None and source.code(parameter.default) == "None"
            said = parameter.annotation
            yield said is not None and bool(
                re.search(r"\b(None|Optional)\b", source.code(said.annotation))
            )
    for target, given in assigned(function.node.body):
        if isinstance(target, cst.Name) and target.value == name:
            yield source.code(given) == "None"
    for comparison in descendants(function.node.body, cst.Comparison):
        yield source.code(comparison) in (f"{name} is None", f"{name} is not None")


def _seen_to(source: Source, function: Function, name: str) -> bool:
    """Whether a function gives a name another value, or goes no further, where it is `None`."""
    for line in descendants(function.node.body, cst.If):
        if source.code(line.test) in (f"{name} is None", f"not {name}"):
            leaves = any(True for kind in LEAVING for _ in descendants(line.body, kind))
            if leaves or binds(line.body, name):
                return True
    asserted = (source.code(line.test) for line in descendants(function.node.body, cst.Assert))
    return any(test in (f"{name} is not None", name) for test in asserted)
