"""Statements of which one is run or the other."""

from __future__ import annotations

import libcst as cst

from agent.syntax import Source


def are_alternatives(source: Source, one: cst.CSTNode, other: cst.CSTNode) -> bool:
    """Whether two nodes stand in different branches of one choice, so that one of them is run."""
    around = {*source.ancestors(one)}
    others = {*source.ancestors(other)}
    return any(
        isinstance(choice, cst.If)
        and choice.orelse is not None
        and (choice.body in around) != (choice.body in others)
        for choice in around & others
    )
