"""Assignments of a kernel that nothing reads once a statement has been written otherwise."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

import libcst as cst

from agent.analysis.triton.dialect import TRITON
from agent.rewriting.common.preceding import preceded
from agent.rewriting.triton.edits import Edit, removing
from agent.syntax import Source, descendants, is_commented

COUNTING = frozenset({*TRITON.iotas, *TRITON.cdivs, *TRITON.program_ids})
"""Calls without which a kernel does the same, where nobody reads what they give."""


def instead_of(
    source: Source, statement: cst.SimpleStatementLine, written: Sequence[str]
) -> dict[cst.CSTNode, Edit]:
    """The edits that write other statements for one of a kernel, and drop what only that needed.

    The comments above those that go right before it stay, above what is written.
    """
    block = cst.ensure_type(next(source.ancestors(statement)), cst.IndentedBlock)
    gone = _left_over(source, block, statement, written)
    edits: dict[cst.CSTNode, Edit] = dict.fromkeys(gone, removing)
    before = block.body[: block.body.index(statement)][::-1]
    last = [*takewhile(lambda line: line in gone, before)]
    above = [line for each in gone if each in last for line in each.leading_lines]

    def edit(updated: cst.SimpleStatementLine) -> cst.CSTNode:
        whole = updated.with_changes(leading_lines=[*above, *updated.leading_lines])
        node: cst.CSTNode = preceded(whole, written, keep=False)
        return node

    edits[statement] = edit
    return edits


def _left_over(
    source: Source,
    block: cst.IndentedBlock,
    statement: cst.SimpleStatementLine,
    written: Sequence[str],
) -> list[cst.SimpleStatementLine]:
    """The assignments whose names are read in the statement, or to compute those, and nowhere else.

    One that nothing read before is no matter of this edit.
    """
    read = set(re.findall(r"\w+", "\n".join(written)))
    found: list[cst.SimpleStatementLine] = []
    lines = [line for line in block.body if isinstance(line, cst.SimpleStatementLine)]
    while True:
        gone = {statement, *found}
        more = [x for x in lines if x not in gone and _only_for(source, x, gone, read)]
        if not more:
            return [line for line in lines if line in found]
        found += more


def _only_for(
    source: Source,
    line: cst.SimpleStatementLine,
    gone: set[cst.SimpleStatementLine],
    read: set[str],
) -> bool:
    """Whether a statement only gives a name a value, which none but these statements reads."""
    match line.body:
        case [cst.Assign(targets=[cst.AssignTarget(target=cst.Name() as target)], value=value)]:
            assignments = source.assignments(target)
            if (
                target.value in read
                or len(assignments) != 1
                or is_commented(line.with_changes(leading_lines=()))
            ):
                return False
            uses = source.uses(assignments[0])
            called = {source.name(call.func) for call in descendants(value, cst.Call)}
            return (
                bool(uses)
                and called <= COUNTING
                and not any(True for _ in descendants(value, cst.NamedExpr))
                and all(any(a in gone for a in source.ancestors(use)) for use in uses)
            )
    return False
