"""Indices that are tuples without parentheses, where what is indexed is called: `kernel[m, n]()`.

LibCST has such an index as parts of the subscript. As a tuple it is what Python makes of it, and
what is asked of a grid is asked of one kind of node. The text stays the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

_CALLED = re.compile(r"\]\s*\(")


def parse(text: str) -> cst.Module:
    """The tree of a module. Raises `libcst.ParserSyntaxError`."""
    module = cst.parse_module(text)
    return module.visit(_Joined()) if _may_hold_one(text) else module


def _may_hold_one(text: str) -> bool:
    """Whether a comma stands right between brackets that are called: a visit takes far longer."""
    for called in _CALLED.finditer(text):
        depth = 0
        for at in range(called.start(), -1, -1):
            letter = text[at]
            if letter in ")]}":
                depth += 1
            elif letter in "([{":
                depth -= 1
                if not depth:
                    break
            elif letter == "," and depth == 1:
                return True
    return False


class _Joined(cst.CSTTransformer):
    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:  # noqa: ARG002, N802
        function = updated_node.func
        if isinstance(function, cst.Subscript) and (joined := _tuple(function.slice)) is not None:
            return updated_node.with_changes(func=function.with_changes(slice=[joined]))
        return updated_node


def _tuple(parts: Sequence[cst.SubscriptElement]) -> cst.SubscriptElement | None:
    elements = [
        cst.Element(part.slice.value, part.comma)
        for part in parts
        if isinstance(part.slice, cst.Index) and part.slice.star is None
    ]
    if len(elements) != len(parts) or not isinstance(parts[0].comma, cst.Comma):
        return None
    return cst.SubscriptElement(cst.Index(cst.Tuple(elements, lpar=(), rpar=())))
