"""Products of matrices that put the elements of one block together.

`tl.dot(q, tl.trans(k))` of the same rows of q and k compares each element of a block with the
others of that block only, and `tl.dot(s, v)` adds up over them: other blocks give other results,
unless a loop goes over all of them. Which dimension rows run along, `rows[:, None]` tells.
"""

from __future__ import annotations

from typing import TypeAlias

import libcst as cst

from agent.analysis.common.dialect import Dialect
from agent.analysis.triton.reduced_axes import TL, TURNING, expanded_axis
from agent.syntax import Source, argument, assigned, children, descendants

Laid: TypeAlias = tuple[frozenset[str], frozenset[str]]
"""The element numbers that run along the first and along the second dimension, as text."""
_NONE: Laid = (frozenset(), frozenset())


def product_of_block(
    dialect: Dialect, source: Source, body: cst.BaseSuite, sizes: frozenset[str]
) -> cst.Call | None:
    """A product that is contracted along a constant's axis, or has that axis twice.

    Args:
        dialect: Triton.
        source: the file.
        body: a kernel's statements.
        sizes: the constant, and the names that are computed from it.
    """
    names: dict[str, Laid] = {}

    def laid(node: cst.CSTNode | None) -> Laid:
        match node:
            case cst.Name(value=name):
                return names.get(name, _NONE)
            case cst.Subscript(value=inner) if (axis := expanded_axis(node)) is not None:
                if not any(name.value in sizes for name in descendants(inner, cst.Name)):
                    return _NONE
                number = frozenset({source.code(inner)})
                return (number, frozenset()) if axis == 0 else (frozenset(), number)
            case cst.Attribute(value=inner, attr=cst.Name(value="T")):
                return turned(laid(inner))
            case cst.Attribute(value=inner) | cst.Arg(value=inner):
                return laid(inner)
            case cst.Call():
                return called(node)
        return together(*map(laid, children(node))) if node is not None else _NONE

    def called(call: cst.Call) -> Laid:
        name = dialect.called(source, call) or ""
        given = [arg.value for arg in call.args]
        if name in dialect.dots:
            return (laid(argument(call, 0, "input"))[0], laid(argument(call, 1, "other"))[1])
        if name == f"{TL}trans" and len(given) == 1:
            return turned(laid(given[0]))
        if name in TURNING or name in dialect.reductions or source.function_of(call.func):
            return _NONE
        return together(laid(call.func), *map(laid, given))

    while True:
        before = dict(names)
        for target, value in assigned(body):
            for name in descendants(target, cst.Name):
                names[name.value] = together(names.get(name.value, _NONE), laid(value))
        if names == before:
            break
    for call in dialect.find(source, body, dialect.dots):
        left, right = (laid(argument(call, at, name)) for at, name in ((0, "input"), (1, "other")))
        if left[1] or right[0] or left[0] & right[1]:
            return call
    return None


def turned(laid: Laid) -> Laid:
    """Of a transposed tile."""
    return laid[1], laid[0]


def together(*each: Laid) -> Laid:
    """Of tiles that are combined element by element."""
    first, second = (frozenset().union(*(laid[at] for laid in each)) for at in (0, 1))
    return first, second
