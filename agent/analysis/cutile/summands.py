"""What the first index of a tile is a sum of: multiples of constants, and elements of tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.reaching_definitions import definition, value_of
from agent.analysis.cutile.dialect import CT
from agent.syntax import Source

GATHER, LOAD = f"{CT}gather", f"{CT}load"


@dataclass(frozen=True)
class Term:
    """One summand of the first of a tile's indices, as text: `text` times `unit`."""

    text: str
    unit: cst.BaseExpression | None = None
    """A compile-time constant; None for one."""
    looked_up: bool = False


@dataclass(frozen=True)
class Lookup:
    """What reads one element of a table, or the same one for every row of a tile."""

    call: cst.BaseExpression
    element: tuple[str, ...] | None
    """The indices of that element; None where the lookup is of one element as it stands."""
    name: str
    """What holds the element in the rewritten kernel."""


Summand: TypeAlias = tuple[Term, cst.BaseExpression, Lookup | None]
"""With the expression that its text repeats."""


def is_constant(source: Source, kernel: Kernel, expression: cst.BaseExpression) -> bool:
    """Whether it is an integer, or a parameter that is one at compile time."""
    behind = value_of(source, expression)
    if isinstance(behind, cst.Name):
        found = definition(source, behind.value, behind)
        return (
            found is not None
            and isinstance(found.node, cst.Param)
            and behind.value in kernel.constants
        )
    return isinstance(behind, cst.Integer)


def is_looked_up(source: Source, expression: cst.BaseExpression) -> bool:
    """Whether it is an element of an array, possibly under a name."""
    behind = value_of(source, expression)
    if not isinstance(behind, cst.Call):
        return False
    if isinstance(behind.func, cst.Attribute) and behind.func.attr.value in ("item", "astype"):
        return is_looked_up(source, behind.func.value)
    return source.name(behind.func) in (GATHER, LOAD)


def factor(text: str) -> str:
    """A sum or product as a factor."""
    return text if text.isidentifier() or text.isdecimal() else f"({text})"
