"""Makes one branch of several that an edit has put one after the other on the same condition.

An entry rewrites one access after the other, each with a branch of its own on a name that it adds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import libcst as cst

from agent.syntax import Source, descendants

_Edit = Callable[[Any], Any]


def with_one_branch_each(before: str, after: str) -> str:
    """The text after an edit, where branches on a name that is new there follow one another."""
    asked = set(re.findall(r"(?m)^\s+if (\w+):", after)) - set(re.findall(r"\w+", before))
    if not asked:
        return after
    source, edits = Source(after), dict[cst.CSTNode, _Edit]()
    for block in descendants(source.module, cst.IndentedBlock):
        first: cst.If | None = None
        more: list[cst.If] = []
        for line in (*block.body, None):
            if isinstance(line, cst.If) and first is not None and _goes_on(first, more, line):
                more.append(line)
                continue
            if first is not None and more:
                edits[first] = partial(_joined, tuple(more))
                edits |= dict.fromkeys(more, lambda _: cst.RemoveFromParent())
            first, more = _asks(line, asked), []
    return source.rewrite(edits) if edits else after


def _asks(line: cst.CSTNode | None, names: set[str]) -> cst.If | None:
    """A statement that is `if name:`, with an `else` or without."""
    match line:
        case cst.If(
            test=cst.Name(value=name),
            body=cst.IndentedBlock(),
            orelse=None | cst.Else(body=cst.IndentedBlock()),
        ) if name in names:
            return line
    return None


def _goes_on(first: cst.If, more: Sequence[cst.If], line: cst.If) -> bool:
    """Whether a statement asks the same as those right before it, and nothing stands between."""
    name = cst.ensure_type(first.test, cst.Name).value
    return (
        _asks(line, {name}) is not None
        and not line.leading_lines
        and not any(_assigns(each, name) for each in (first, *more))
    )


def _assigns(line: cst.If, name: str) -> bool:
    targets = (each.target for each in descendants(line, cst.AssignTarget))
    return any(isinstance(each, cst.Name) and each.value == name for each in targets)


def _joined(more: Sequence[cst.If], first: cst.If) -> cst.If:
    every = (first, *more)
    bodies = [cst.ensure_type(each.body, cst.IndentedBlock) for each in every]
    others = [each.orelse.body for each in every if isinstance(each.orelse, cst.Else)]
    lines = [cst.ensure_type(each, cst.IndentedBlock) for each in others]
    found = next((each.orelse for each in every if isinstance(each.orelse, cst.Else)), None)
    orelse = found.with_changes(body=_one(lines)) if found is not None else None
    return first.with_changes(body=_one(bodies), orelse=orelse)


def _one(blocks: Sequence[cst.IndentedBlock]) -> cst.IndentedBlock:
    return blocks[0].with_changes(body=[line for block in blocks for line in block.body])
