"""What differs from one program of the grid to another; cuTile calls a program a block."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import libcst as cst

from agent.analysis.common.derived_names import derived_names
from agent.analysis.common.dialect import Dialect
from agent.syntax import Function, Source, descendants


def names_by_program(
    dialect: Dialect, source: Source, function: Function, given: Iterable[str] = ()
) -> frozenset[str]:
    """The names of a kernel whose values differ from one program of the grid to another.

    Args:
        dialect: its language.
        source: the file.
        function: the kernel's function, or a helper's.
        given: the parameters that differ.
    """
    body = function.node.body
    found = derived_names(body, lambda v, names: by_program(dialect, source, v, names), given)
    return frozenset(found)


def by_program(
    dialect: Dialect, source: Source, expression: cst.BaseExpression, names: Collection[str]
) -> bool:
    """Whether an expression differs from one program of the grid to another."""
    return any(n.value in names for n in descendants(expression, cst.Name)) or dialect.has(
        source, expression, dialect.program_ids
    )
