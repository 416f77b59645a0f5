"""Launches that compute an option for themselves: they are given another value in its place.

`num_warps=warps`, where `warps = min(n // 256, 8)` stands above it, says what it does and goes on
doing so. What a caller chooses, or a function that nobody here has read, is not replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import libcst as cst

from agent.analysis.common.dialect import Launch
from agent.analysis.common.purity import is_pure
from agent.analysis.common.reaching_definitions import is_unchanged
from agent.analysis.triton.dialect import ROUNDING
from agent.rewriting.triton.edits import Edit, giving, writing
from agent.syntax import Function, Source, names_in

KNOWN = ("builtins.max", "builtins.min", *ROUNDING)


def computes_own(source: Source, launch: Launch, option: str) -> bool:
    """Whether a launch computes an option from sizes: in its keyword, in a line of its own, or in
    several, as `if n > 4096: warps = 8` does."""
    given = launch.hints.get(option)
    if isinstance(given, cst.Name):
        lines = lines_of(source, launch.function, given)
        values = [cst.ensure_type(line.body[0], cst.Assign).value for line in lines]
        if len(values) > 1:
            return all(is_pure(source, value, KNOWN) for value in values)
        given = values[0] if values else None
    return (
        given is not None
        and not isinstance(given, cst.Name | cst.Integer)
        and is_pure(source, given, KNOWN)
    )


def overriding(
    source: Source, launches: Sequence[tuple[Launch, Mapping[str, str]]]
) -> dict[cst.CSTNode, Edit]:
    """The edits that give launches other options.

    A line that computes what one launch has, and nothing else, computes the new one; otherwise the
    launch says it.

    Args:
        source: the file.
        launches: each with its options as text.
    """
    edits: dict[cst.CSTNode, Edit] = {}
    for launch, options in launches:
        said: dict[str, str] = {}
        for name, text in options.items():
            had = launch.hints.get(name)
            line = _line_of(source, had) if isinstance(had, cst.Name) else None
            if (
                line is not None
                and isinstance(had, cst.Name)
                and _may_hold(source, line, had, text)
            ):
                value = cst.ensure_type(line.body[0], cst.Assign).value
                if source.code(value) != text:
                    edits[value] = writing(text)
            elif had is None or source.code(had) != text:
                said[name] = text
        if said:
            edits[launch.node] = giving(source, launch.node, said)
    return edits


def _may_hold(source: Source, line: cst.SimpleStatementLine, name: cst.Name, text: str) -> bool:
    """Whether a name is there for one launch, and what it is to be is the same where it is
    assigned."""
    if source.uses(source.assignments(name)[0]) != (name,):
        return False
    names = names_in(cst.parse_expression(text))
    return all(is_unchanged(source, each, line, name) for each in names)


def lines_of(
    source: Source, function: Function | None, name: cst.Name
) -> tuple[cst.SimpleStatementLine, ...]:
    """The lines of a function that assign a name and nothing else; none where others do, too."""
    assignments = source.assignments(name)
    if len(assignments) < 2:
        line = _line_of(source, name)
        return (line,) if line is not None else ()
    found: list[cst.SimpleStatementLine] = []
    for assignment in assignments:
        around = next(
            (a for a in source.ancestors(assignment.node) if isinstance(a, cst.BaseStatement)),
            None,
        )
        match around:
            case cst.SimpleStatementLine(
                body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name())])]
            ) if function is not None and source.enclosing(around) == function:
                found.append(around)
            case _:
                return ()
    return tuple(found)


def _line_of(source: Source, name: cst.Name) -> cst.SimpleStatementLine | None:
    """The one line that assigns a name, and nothing else."""
    assignments = source.assignments(name)
    if len(assignments) != 1:
        return None
    for around in source.ancestors(assignments[0].node):
        match around:
            case cst.SimpleStatementLine(
                body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name())])]
            ):
                return around
            case cst.BaseCompoundStatement():
                return None
    return None
