"""Arrays of host code whose shape changes in place, so that no name tells what it is.

A definition says which array a name is, and not what `y.resize_(n)` has made of it since. The
names of such an array are found by the text of the file: those it is assigned to, handed on as, or
looped over under, in whatever function.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TypeAlias

import libcst as cst

from agent.syntax import Source, assigned, descendants, positional

RESIZING = frozenset(
    {
        "as_strided_",
        "resize_",
        "resize_as_",
        "set_",
        "squeeze_",
        "swapaxes_",
        "swapdims_",
        "t_",
        "transpose_",
        "unsqueeze_",
    }
)
"""Methods of a tensor, and functions of torch, that give the tensor another shape."""
_HANDING_ON = ("enumerate", "list", "reversed", "tuple", "zip")
_Link: TypeAlias = tuple[frozenset[str], frozenset[str]]


@lru_cache(maxsize=64)
def resized(source: Source) -> frozenset[str]:
    """The names that may stand for an array whose shape changes in place."""
    found = set(_resized_here(source))
    links = list(_links(source)) if found else []
    while added := {name for link in links if found & frozenset().union(*link)
                    for names in link for name in names} - found:  # fmt: skip
        found |= added
    return frozenset(found)


def _resized_here(source: Source) -> Iterator[str]:
    for call in source.calls:
        if not isinstance(call.func, cst.Attribute) or call.func.attr.value not in RESIZING:
            continue
        of_torch = (source.name(call.func) or "").startswith("torch.")
        yield from _arrays(source, positional(call)[0] if of_torch and call.args else call.func)
    for target, _ in assigned(source.module):
        if _is_content(target):
            yield from _arrays(source, target)


def _links(source: Source) -> Iterator[_Link]:
    """Names that may stand for the same array as others."""
    for target, value in assigned(source.module):
        if not _is_content(target):
            yield frozenset(_arrays(source, target)), frozenset(_arrays(source, value))
    for loop in descendants(source.module, cst.CompFor):
        yield frozenset(_arrays(source, loop.target)), frozenset(_arrays(source, loop.iter))
    for call in source.calls:
        if (function := source.function_of(call.func)) is None:
            continue
        names = {parameter.name.value for parameter in function.parameters}
        for place, arg in enumerate(call.args):
            taken = [parameter.name.value for parameter in function.parameters[place : place + 1]]
            taken = [arg.keyword.value] if arg.keyword else taken
            own = names if arg.star else names & set(taken)
            yield frozenset(own), frozenset(_arrays(source, arg.value))


def _is_content(target: cst.BaseExpression) -> bool:
    """Whether it is `y.data`: y stays another array than the one whose content it is given."""
    return isinstance(target, cst.Attribute) and target.attr.value == "data"


def _arrays(source: Source, value: cst.BaseExpression) -> Iterator[str]:
    """The names of the arrays that an expression may be, or may hold."""
    match value:
        case cst.Name(value=name):
            yield name
        case cst.Attribute(value=inner) | cst.Subscript(value=inner):
            yield from _arrays(source, inner)
        case cst.Call(func=cst.Attribute(value=owner) as function):
            # `y.contiguous()` may be y; what torch makes of y has a shape of its own.
            if not (source.name(function) or "").startswith("torch."):
                yield from _arrays(source, owner)
        case cst.Call(func=cst.Name(value=name), args=arguments) if name in _HANDING_ON:
            for argument in arguments:
                yield from _arrays(source, argument.value)
        case cst.IfExp(body=one, orelse=other) | cst.BooleanOperation(left=one, right=other):
            yield from _arrays(source, one)
            yield from _arrays(source, other)
        case cst.Tuple(elements=elements) | cst.List(elements=elements):
            for element in elements:
                yield from _arrays(source, element.value)
