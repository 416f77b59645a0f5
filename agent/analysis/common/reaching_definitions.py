"""Reaching definitions: the assignment that gives a name its value at a place of a function.

`Source.resolve` follows names that are assigned once. Kernels in several passes assign `i` and
`offsets` once a pass, so that an index can only be understood from the assignment that reaches it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import libcst as cst

from agent.syntax import Source, assigned, descendants

Binder: TypeAlias = cst.Assign | cst.AnnAssign | cst.AugAssign | cst.For | cst.Param


@dataclass(frozen=True)
class Definition:
    """Where a value comes from. Two definitions of the same node and index are the same value,
    as long as both are asked for in the same round of the loops around them."""

    node: Binder
    value: cst.BaseExpression | None = None
    """What is assigned; a loop's iterable; None for a parameter."""
    index: int | None = None
    """The name is this element of the value, in `m, n = x.shape`."""


class Ambiguous(Exception):
    """More than one assignment may reach the place, or one that is none of the simple kinds."""


def definition(source: Source, name: str, place: cst.CSTNode) -> Definition | None:
    """The one assignment whose value `name` has at a place; None when that is not certain.

    A branch or loop that may assign the name on the way makes it uncertain.
    """
    found = _definition(source, name, place)
    return None if found is None or isinstance(found.node, cst.AugAssign) else found


def augmentation(source: Source, name: cst.Name) -> cst.AugAssign | None:
    """The `x += ...` that gives a name its value where it stands, if that is what does."""
    found = _definition(source, name.value, name)
    return found.node if found is not None and isinstance(found.node, cst.AugAssign) else None


@lru_cache(maxsize=2**14)
def _definition(source: Source, name: str, place: cst.CSTNode) -> Definition | None:
    try:
        return _reaching(source, name, place)
    except Ambiguous:
        return None


def value_of(source: Source, expression: cst.BaseExpression) -> cst.BaseExpression:
    """The expression behind a name, followed through plain assignments."""
    seen: set[cst.CSTNode] = set()
    while isinstance(expression, cst.Name):
        found = definition(source, expression.value, expression)
        if (
            found is None
            or found.value is None
            or found.index is not None
            or isinstance(found.node, cst.For)
            or found.node in seen
        ):
            break
        seen.add(found.node)
        expression = found.value
    return expression


def traced(source: Source, expression: cst.BaseExpression) -> cst.BaseExpression:
    """The expression behind a name: of the assignment that reaches it, or else of its only one."""
    return source.resolve(value_of(source, expression))


def is_unchanged(source: Source, name: str, one: cst.CSTNode, other: cst.CSTNode) -> bool:
    """Whether a name has the same value at two places of a function, whatever that value is.

    It is asked of two places that one run of the function comes by, in the same round of the loops
    around both: then nothing may assign the name between them, nor in a loop around one of them.
    A lambda or a comprehension around one of them has names of its own.
    """
    function = source.enclosing(one)
    if function is None or function is not source.enclosing(other):
        return False
    if _is_assigned_within(source, name, one):
        return False
    ends = _binding_ends(source, function.node.body).get(name, ())
    first, last = sorted(_start(source, place) for place in (one, other))
    if any(first < end <= last for end in ends):
        return False
    around, others = (set(source.ancestors(place)) for place in (one, other))
    return not any(
        isinstance(node, cst.Lambda | cst.BaseComp)
        or (isinstance(node, cst.For | cst.While) and binds(node, name))
        for node in around ^ others
    )


_BINDING = (
    cst.For, cst.Assign, cst.AnnAssign, cst.AugAssign, cst.NamedExpr, cst.WithItem, cst.Del,
    cst.Import, cst.ImportFrom, cst.Match, cst.ExceptHandler,
)  # fmt: skip
_Position: TypeAlias = tuple[int, int]
"""Line and column."""


def _start(source: Source, node: cst.CSTNode) -> _Position:
    start = source.place(node).start
    return start.line, start.column


@lru_cache(maxsize=2**10)
def _binding_ends(source: Source, body: cst.BaseSuite) -> Mapping[str, Sequence[_Position]]:
    """Name -> where statements end that give it another value; of a loop, its variable."""
    found: dict[str, list[_Position]] = {}
    for kind in _BINDING:
        for node in descendants(body, kind):
            own = node.target if isinstance(node, cst.For) else node
            end = source.place(own).end
            for name in _names(own) if isinstance(node, cst.For) else _bound(node):
                found.setdefault(name, []).append((end.line, end.column))
    return found


def binds(node: cst.CSTNode, name: str) -> bool:
    """Whether anything at or below a node gives the name another value."""
    return name in _bound(node)


@lru_cache(maxsize=2**16)
def _bound(node: cst.CSTNode) -> frozenset[str]:
    """The names that anything at or below a node assigns; asked for again and again."""
    return frozenset().union(*(_names(target) for target in _targets(node)))


def _reaching(source: Source, name: str, place: cst.CSTNode) -> Definition | None:
    if _is_assigned_within(source, name, place):
        raise Ambiguous
    node = place
    for parent in source.ancestors(place):
        match parent:
            case cst.Module():
                return _of_module(parent, name)
            case cst.IndentedBlock() | cst.SimpleStatementLine():
                for statement in _before(parent.body, node):
                    if (found := _assigned_by(statement, name)) is not None:
                        return found
            case cst.For() if node is parent.body or node is parent.orelse:
                if binds(parent.body, name):
                    raise Ambiguous
                if name in _names(parent.target):
                    whole = isinstance(parent.target, cst.Name) and node is parent.body
                    return Definition(parent, parent.iter) if whole else None
            case cst.While() if binds(parent.body, name):
                raise Ambiguous
            case cst.FunctionDef() if node is parent.body:
                listed = parent.params
                for param in (*listed.posonly_params, *listed.params, *listed.kwonly_params):
                    if param.name.value == name:
                        return Definition(param)
                if binds(parent.body, name) or _is_starred(listed, name):
                    raise Ambiguous
            case cst.Lambda() | cst.BaseComp():
                raise Ambiguous
        node = parent
    return None


def _of_module(module: cst.Module, name: str) -> Definition | None:
    """What a function finds in the module when it is called: what is assigned there once."""
    if name in _declared_global(module):
        raise Ambiguous
    found = [d for s in module.body if (d := _assigned_by(s, name)) is not None]
    return found[0] if len(found) == 1 else None


def _is_assigned_within(source: Source, name: str, place: cst.CSTNode) -> bool:
    """Whether a function inside one around the place may assign the name whenever it is called."""
    around = (a for a in source.ancestors(place) if isinstance(a, cst.FunctionDef))
    return any(name in _declared_nonlocal(function) for function in around)


@lru_cache(maxsize=2**10)
def _declared_nonlocal(function: cst.FunctionDef) -> frozenset[str]:
    statements = descendants(function.body, cst.Nonlocal)
    return frozenset(item.name.value for statement in statements for item in statement.names)


@lru_cache(maxsize=64)
def _declared_global(module: cst.Module) -> frozenset[str]:
    """The names that some function declares `global`, which it may then assign."""
    statements = descendants(module, cst.Global)
    return frozenset(item.name.value for statement in statements for item in statement.names)


def _before(body: Sequence[cst.CSTNode], node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The statements before one, the nearest first; none when it is no statement of the body."""
    place = next((i for i, statement in enumerate(body) if statement is node), 0)
    return iter(body[:place][::-1])


def _assigned_by(statement: cst.CSTNode, name: str) -> Definition | None:
    """What a statement assigns to the name; None when it leaves it alone."""
    if isinstance(statement, cst.SimpleStatementLine):
        found = (_assigned_by(small, name) for small in reversed(statement.body))
        return next((f for f in found if f is not None), None)
    if isinstance(statement, cst.FunctionDef | cst.ClassDef):
        if statement.name.value == name:
            raise Ambiguous
        return None
    if not binds(statement, name):
        return None
    if isinstance(statement, cst.AnnAssign) and isinstance(statement.target, cst.Name):
        return Definition(statement, statement.value)
    if isinstance(statement, cst.AugAssign) and isinstance(statement.target, cst.Name):
        return Definition(statement)
    if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
        target, value = statement.targets[0].target, statement.value
        if isinstance(target, cst.Name):
            return Definition(statement, value)
        if isinstance(target, cst.Tuple | cst.List):
            return _element(statement, target.elements, value, name)
    raise Ambiguous


def _element(
    statement: cst.Assign,
    targets: Sequence[cst.BaseElement],
    value: cst.BaseExpression,
    name: str,
) -> Definition:
    if any(isinstance(e, cst.StarredElement) for e in targets):
        raise Ambiguous
    places = [
        index
        for index, element in enumerate(targets)
        if isinstance(element.value, cst.Name) and element.value.value == name
    ]
    if len(places) != 1:
        raise Ambiguous
    (index,) = places
    if isinstance(value, cst.Tuple | cst.List):
        if len(value.elements) != len(targets):
            raise Ambiguous
        return Definition(statement, value.elements[index].value)
    return Definition(statement, value, index)


def _targets(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    yield from (target for target, _ in assigned(node))
    yield from (walrus.target for walrus in descendants(node, cst.NamedExpr))
    yield from (item.asname.name for item in descendants(node, cst.WithItem) if item.asname)
    yield from (deleted.target for deleted in descendants(node, cst.Del))
    for capturing in (cst.MatchAs, cst.MatchStar):
        for capture in descendants(node, capturing):
            if (captured := getattr(capture, "name", None)) is not None:
                yield captured
    yield from (mapping.rest for mapping in descendants(node, cst.MatchMapping) if mapping.rest)
    for handler in descendants(node, cst.ExceptHandler):
        if handler.name is not None:
            yield handler.name.name
    for alias in descendants(node, cst.ImportAlias):
        yield alias.asname.name if alias.asname else alias.name


def _names(target: cst.CSTNode) -> set[str]:
    """The names a target assigns; an element or attribute of something assigns none."""
    match target:
        case cst.Name():
            return {target.value}
        case cst.Tuple() | cst.List():
            return set().union(*(_names(e.value) for e in target.elements))
        case _:
            return set()


def _is_starred(listed: cst.Parameters, name: str) -> bool:
    starred = (listed.star_arg, listed.star_kwarg)
    return any(isinstance(p, cst.Param) and p.name.value == name for p in starred)
