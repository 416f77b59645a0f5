"""What host code does with the name of a size besides giving it to launches and making grids of it.

Uses that ask nothing of the size of a tile: computing it, checking it, choosing options by it, and
handing it on.
"""

from __future__ import annotations

import libcst as cst

from agent.analysis.common.dialect import Launch
from agent.analysis.common.reaching_definitions import binds
from agent.syntax import Source, descendants

_ASSIGNING = (cst.Assign, cst.AnnAssign, cst.AugAssign)


def only_for_options(source: Source, use: cst.Name, launches: list[Launch]) -> bool:
    """Whether a use computes an option of launches alone: `warps = 8 if BLOCK > 2048 else 4`.

    That may be kept for other launches: whatever the number is, it changes no result.
    """
    statement = next((a for a in source.ancestors(use) if isinstance(a, cst.BaseStatement)), None)
    inside = statement.body.body if isinstance(statement, cst.If) else [statement]
    options = {id(value) for launch in launches for value in launch.hints.values()}
    if any(id(a) in options for a in (use, *source.ancestors(use))):
        return True
    for line in inside:
        match line:
            case cst.SimpleStatementLine(
                body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name() as target)])]
            ):
                later = [u for a in source.assignments(target) for u in source.uses(a)]
                later = [u for u in later if not is_of_its_own(source, u)]
                chosen = [u for u in later if id(u) in options]
                rest = [u for u in later if u not in chosen and not is_handed_on(source, u)]
                if not chosen or rest:
                    return False
            case _:
                return False
    return not (isinstance(statement, cst.If) and isinstance(statement.orelse, cst.Else))


def is_handed_on(source: Source, use: cst.Name) -> bool:
    """Whether a use only returns the name, or keeps it: `ctx.BLOCK = BLOCK`."""
    for around in source.ancestors(use):
        match around:
            case cst.Return():
                return True
            case cst.Assign(targets=[cst.AssignTarget(target=target)]):
                parts = [e.value for e in target.elements] if isinstance(target, cst.Tuple) else []
                return all(isinstance(part, cst.Attribute) for part in parts or [target])
            case cst.Call() | cst.BinaryOperation() | cst.BaseStatement():
                return False
    return False


def is_of_its_own(source: Source, use: cst.Name) -> bool:
    """Whether a use is part of computing the name itself: `BLOCK = min(BLOCK, 2048)`."""
    for around in source.ancestors(use):
        if isinstance(around, _ASSIGNING):
            return binds(around, use.value)
        if isinstance(around, cst.BaseStatement):
            return False
    return False


def is_guard(source: Source, use: cst.Name) -> bool:
    """Whether a use decides only whether to raise, or to assert."""
    for around in source.ancestors(use):
        if isinstance(around, cst.Assert | cst.Raise):
            return True
        if isinstance(around, cst.If):
            body = around.body.body
            return around.orelse is None and all(
                isinstance(line, cst.SimpleStatementLine) and isinstance(line.body[0], cst.Raise)
                for line in body
            )
        if isinstance(around, cst.BaseStatement):
            return False
    return False


def feeds(source: Source, use: cst.Name, launch: Launch, launches: list[Launch]) -> bool:
    """Whether what is computed from a use may reach a launch, through names of its function.

    What another function computes does not, unless the launching one mentions that; nor what
    another launch is given: which places that fills, its own blocks say. What is done with the use
    other than computing a name may do anything.
    """
    others = {each.node for each in launches if each is not launch}
    function = source.enclosing(use)
    if function is None or launch.function is None:
        return True
    if function is not launch.function:
        mentions = source.mentions(function)
        return any(launch.function.node in source.ancestors(each) for each in mentions)
    seen: set[cst.Name] = set()
    pending = [use]
    while pending:
        node = pending.pop()
        around = [*source.ancestors(node)]
        if launch.node in around:
            return True
        if not others.isdisjoint(around):
            continue
        statement = next((a for a in around if isinstance(a, cst.BaseSmallStatement)), None)
        if not isinstance(statement, cst.Assign):
            return True
        targets = [name for t in statement.targets for name in descendants(t.target, cst.Name)]
        later = {u for name in targets for a in source.assignments(name) for u in source.uses(a)}
        pending += later - seen
        seen |= later
    return False
