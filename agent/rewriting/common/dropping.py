"""Drops statements of a block, and keeps what stands above them above what follows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import libcst as cst

Edit = Callable[[Any], Any]


def dropping(
    block: cst.IndentedBlock, dead: Collection[cst.SimpleStatementLine]
) -> dict[cst.CSTNode, Edit]:
    """The edits that drop statements of a block; what is above them stays, above what follows.

    A block has to hold something, and a comment something below it.
    """
    gone = [line for line in block.body if line in dead]
    if not gone or len(gone) == len(block.body):
        return {}
    edits: dict[cst.CSTNode, Edit] = {}
    above: list[cst.EmptyLine] = []
    dropped: list[cst.CSTNode] = []
    for line in block.body:
        if line in gone:
            dropped.append(line)
            above += _above(line)
            continue
        if above:
            edits[line] = partial(_below, above)
        edits |= dict.fromkeys(dropped, lambda _: cst.RemoveFromParent())
        above, dropped = [], []
    if dropped and not any(line.comment for line in above):
        edits |= dict.fromkeys(dropped, lambda _: cst.RemoveFromParent())
    return edits


def _above(line: Any) -> Sequence[cst.EmptyLine]:
    lines: Sequence[cst.EmptyLine] = line.leading_lines
    return lines


def _below(above: Sequence[cst.EmptyLine], statement: Any) -> Any:
    """A statement below lines that stood above another; where blank ones meet, one is left."""
    lines: list[cst.EmptyLine] = []
    for line in (*above, *statement.leading_lines):
        if line.comment or not lines or lines[-1].comment:
            lines.append(line)
    return statement.with_changes(leading_lines=lines)
