"""Removes the assignments that nothing uses once accesses of arrays are replaced."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.cutile.dialect import CUTILE
from agent.syntax import Source, descendants


def unused_after(
    source: Source,
    kernel: Kernel,
    gone: Iterable[cst.BaseExpression],
    kept: Collection[str],
) -> dict[cst.CSTNode, Callable[[Any], Any]]:
    """The edits that remove the assignments which only replaced expressions used.

    Args:
        source: the file.
        kernel: whose body is looked at.
        gone: the expressions that are no longer there.
        kept: the names that what stands in their place mentions.
    """
    edits: dict[cst.CSTNode, Callable[[Any], Any]] = {}
    body, gone = kernel.function.node.body, list(gone)
    while True:
        inside = {id(n) for e in gone for n in descendants(e, cst.Name)}
        candidates = {n.value for e in gone for n in descendants(e, cst.Name)} - set(kept)
        found = []
        for line in descendants(body, cst.SimpleStatementLine):
            name = _assigned_name(line)
            if (
                line not in edits
                and name in candidates
                and not any(True for _ in CUTILE.find(source, line, CUTILE.stores))
                and not any(
                    n.value == name and id(n) not in inside and not _is_target(source, n)
                    for n in descendants(body, cst.Name)
                )
            ):
                found.append(line)
        if not found:
            return edits
        for line in found:
            edits[line] = lambda _: cst.RemoveFromParent()
            gone.append(cst.ensure_type(line.body[0], cst.Assign).value)


def _assigned_name(line: cst.SimpleStatementLine) -> str | None:
    """The name a line assigns, if it does nothing else and carries no comment."""
    comments = [above.comment for above in line.leading_lines]
    if len(line.body) != 1 or any((*comments, line.trailing_whitespace.comment)):
        return None
    match line.body[0]:
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))]):
            return name
    return None


def _is_target(source: Source, name: cst.Name) -> bool:
    return isinstance(next(source.ancestors(name), None), cst.AssignTarget)
