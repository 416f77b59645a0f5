"""Statements of which one is run or the other."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from agent.syntax import Source


def are_alternatives(source: Source, one: cst.CSTNode, other: cst.CSTNode) -> bool:
    """Whether one of two nodes stands in for the other.

    They are in different branches of an `if`, or the second is there for where the first has
    failed. A test is run before either branch, and is no alternative to one.
    """
    around, others = ({*source.ancestors(node)} for node in (one, other))
    for choice in around & others:
        branches = {*_branches(choice)}
        first, second = branches & around, branches & others
        if first and second and first != second:
            return True
    return False


def _branches(choice: cst.CSTNode) -> Sequence[cst.CSTNode]:
    match choice:
        case cst.If(body=body, orelse=cst.CSTNode() as otherwise):
            return body, otherwise
        case cst.Try(body=body, handlers=handlers):
            return body, *handlers
    return ()
