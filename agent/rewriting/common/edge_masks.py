"""Puts masks under the condition that they remove something, with what only they read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import libcst as cst

from agent.analysis.common.derived_names import is_no_variable
from agent.analysis.common.edge_masks import EdgeMask, reads
from agent.analysis.common.edge_tests import EITHER
from agent.rewriting.common.dead_names import COUNTING
from agent.syntax import Edits, Source, descendants

Edit = Callable[[Any], Any]
HoldsAt = Callable[[Source, cst.BaseExpression, cst.CSTNode], bool]


def under_conditions(source: Source, masks: Iterable[EdgeMask], holds_at: HoldsAt) -> Edits:
    """The edits that do it.

    Args:
        source: the file.
        masks: of one kernel.
        holds_at: whether an expression has the same value at another place.
    """
    edits: dict[Any, Edit] = {}
    for mask in masks:
        moved = [line for line in _for_the_mask(source, mask, holds_at) if line not in edits]
        edits |= dict.fromkeys(moved, _removed)
        edits[mask.line] = _under_condition(source, mask, moved)
    return edits


def _removed(_: Any) -> cst.RemovalSentinel:
    return cst.RemoveFromParent()


def _under_condition(source: Source, mask: EdgeMask, moved: list[cst.SimpleStatementLine]) -> Edit:
    """The edit that writes `if`, below it what only the mask reads, and the mask."""
    test = EITHER.join(mask.tests)
    form, is_itself = mask.form, mask.form.is_itself(source)
    before = [] if is_itself else [f"{form.target} = {source.code(form.kept)}"]
    inner = [line.with_changes(leading_lines=_comments(line)) for line in moved]

    def edit(line: cst.SimpleStatementLine) -> Any:
        masked = line
        if not is_itself:
            target = cst.AssignTarget(cst.Name(form.target))
            masked = line.with_changes(body=[cst.Assign([target], form.again)])
        block = cst.IndentedBlock([*inner, masked.with_changes(leading_lines=_comments(line))])
        asked = cst.If(cst.parse_expression(test), block)
        first, *rest = [*map(cst.parse_statement, before), asked]
        spaces = [each for each in line.leading_lines if each.comment is None]
        return cst.FlattenSentinel([first.with_changes(leading_lines=spaces), *rest])

    return edit


def _comments(line: cst.SimpleStatementLine) -> list[cst.EmptyLine]:
    return [each for each in line.leading_lines if each.comment is not None]


def _for_the_mask(
    source: Source, mask: EdgeMask, holds_at: HoldsAt
) -> list[cst.SimpleStatementLine]:
    """The statements before a mask, in the same block, that give element numbers or comparisons
    which nothing but the mask reads, in their order."""
    block = next(a for a in source.ancestors(mask.line) if isinstance(a, cst.IndentedBlock))
    above = [
        line
        for line in block.body[: block.body.index(mask.line)]
        if isinstance(line, cst.SimpleStatementLine) and _counted(source, line)
    ]
    gone: list[cst.CSTNode] = [mask.mask]
    found: list[cst.SimpleStatementLine] = []
    tests = [cst.parse_expression(test) for test in mask.tests]
    for line in reversed(above):
        name, value = _counted(source, line), cst.ensure_type(line.body[0], cst.Assign).value
        is_free = not reads(tests, name) and not _is_read(source, line, name, [*gone, *found])
        if is_free and not reads([value], mask.form.target) and holds_at(source, value, mask.line):
            found.insert(0, line)
    return found


def _counted(source: Source, line: cst.SimpleStatementLine) -> str:
    """The name that a line gives a value that is only computed; else nothing."""
    match line.body:
        case [cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=value)]:
            called = [source.name(call.func) or "" for call in descendants(value, cst.Call)]
            if all(name.rpartition(".")[2] in COUNTING for name in called):
                return name
    return ""


def _is_read(
    source: Source, line: cst.SimpleStatementLine, name: str, gone: Collection[cst.CSTNode]
) -> bool:
    """Whether the function reads a name besides what becomes a part of the condition's block."""
    function = source.enclosing(line)
    assert function is not None
    for read in descendants(function.node, cst.Name):
        if read.value == name and not any(a in gone for a in source.ancestors(read)):
            if read in gone or is_no_variable(source, read):  # the mask itself, or `mask=`
                continue
            is_target = any(isinstance(a, cst.AssignTarget) for a in source.ancestors(read))
            if not is_target or line not in source.ancestors(read):
                return True
    return False
