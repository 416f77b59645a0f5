"""Statements that an edit writes above another one, whose comments stay with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import libcst as cst


def preceded(
    statement: Any, written: Sequence[str], *, keep: bool = True, of_one: bool = False
) -> Any:
    """A statement with others above it and above its comments; or the others in its place.

    Args:
        statement: with the lines above it that are its own.
        written: what comes first; one at least.
        keep: whether the statement stays. Where it does not, its comments go to the first.
        of_one: whether its comments tell of what is written as well, and stay above both.
    """
    first, *rest = map(cst.parse_statement, written)
    lines = statement.leading_lines
    above, own = (lines, []) if of_one or not keep else _split(lines)
    kept = [statement.with_changes(leading_lines=own)] if keep else []
    return cst.FlattenSentinel([first.with_changes(leading_lines=above), *rest, *kept])


def _split(lines: Sequence[cst.EmptyLine]) -> tuple[list[cst.EmptyLine], list[cst.EmptyLine]]:
    """The lines above a statement up to the last blank one, and the comments right above it."""
    blank = next((n for n in range(len(lines), 0, -1) if lines[n - 1].comment is None), 0)
    return list(lines[:blank]), list(lines[blank:])
