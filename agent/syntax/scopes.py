"""Which scope each node stands in, as LibCST works it out, in a third of the time.

LibCST's visitors copy every node they pass, and the providers visit the tree once more for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
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
    """Visits the children itself, whitespace left out, and keeps LibCST from doing so.

    Its `visit` asks besides whether what a visitor gives back is a node, of abstract classes.
    """

    def on_visit(self, node: cst.CSTNode) -> bool:
        method = _method(type(self), type(node))
        if method is None or method(self, node) is not False:
            for child in children(node):
                self.on_visit(child)
                self.on_leave(child)
        return False


@cache
def _method(visitor: type[cst.CSTVisitor], kind: type[cst.CSTNode]) -> Callable[..., Any] | None:
    """What a visitor does with a kind of node before its children; most have none."""
    return getattr(visitor, f"visit_{kind.__name__}", None)


class _Contexts(_Straight, ExpressionContextVisitor):
    pass


class _Scopes(_Straight, ScopeVisitor):
    pass
