"""Which scope each node stands in, as LibCST works it out, in a third of the time.

LibCST's visitors copy every node they pass, and the providers visit the tree once more for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import libcst as cst
from libcst.metadata import ExpressionContext, Scope
from libcst.metadata.expression_context_provider import ExpressionContextVisitor
from libcst.metadata.scope_provider import ScopeVisitor

from agent.syntax.tree import children


def scopes(module: cst.Module) -> Mapping[cst.CSTNode, Scope | None]:
    """The scope of every node but for whitespace; None where a global or class is the outermost."""
    contexts: Any = _Found({})
    module.visit(_Contexts(contexts, ExpressionContext.LOAD))
    found: Any = _Found(contexts.found)
    visitor = _Scopes(found)
    module.visit(visitor)
    visitor.infer_accesses()
    result: dict[cst.CSTNode, Scope | None] = found.found
    return result


class _Found:
    """What a visitor takes for its provider: where it leaves what it found."""

    def __init__(self, known: Mapping[cst.CSTNode, Any]) -> None:
        self.known = known
        self.found: dict[cst.CSTNode, Any] = {}

    def set_metadata(self, node: cst.CSTNode, value: Any) -> None:
        self.found[node] = value

    def get_metadata(self, _: object, node: cst.CSTNode, default: Any = None) -> Any:
        return self.known.get(node, default)


class _Straight(cst.CSTVisitor):
    """Visits the children itself, whitespace left out, and keeps LibCST from doing so."""

    def on_visit(self, node: cst.CSTNode) -> bool:
        if super().on_visit(node):
            for child in children(node):
                child.visit(self)
        return False


class _Contexts(_Straight, ExpressionContextVisitor):
    pass


class _Scopes(_Straight, ScopeVisitor):
    pass
