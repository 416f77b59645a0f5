"""Every assignment that a name's value may come from at a place of a function.

`reaching_definitions` finds the one assignment that certainly gives it; here there may be several,
as where a branch masks a tile or a loop hands a value on to its next round. None is left out: what
is not understood raises `Ambiguous`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import libcst as cst

from agent.analysis.common.reaching_definitions import Ambiguous, binds
from agent.syntax import Source, descendants, names_in

Binder: TypeAlias = cst.Assign | cst.AnnAssign | cst.AugAssign | cst.For | cst.Param
_Found: TypeAlias = dict[Binder, None]


def possible_definitions(source: Source, name: cst.Name) -> tuple[Binder, ...]:
    """What may have given a name its value where it is read; none for a name of the module.

    Of `x += y` that is the statement itself, which reads another value of the name.

    Raises:
        Ambiguous: the name is bound in a way, or read at a place, that is not followed.
    """
    _check(source, name)
    found: _Found = {}
    child: cst.CSTNode = name
    for parent in source.ancestors(name):
        match parent:
            case cst.IndentedBlock() | cst.SimpleStatementLine() | cst.SimpleStatementSuite():
                place = next(i for i, each in enumerate(parent.body) if each is child)
                if _backwards(parent.body[:place], name.value, found):
                    return tuple(found)
            case cst.For() if child is parent.body:
                _around(parent, name.value, found)
                if name.value in names_in(parent.target):
                    found[parent] = None
                    return tuple(found)
            case cst.While() if child is not parent.orelse:
                _around(parent, name.value, found)
            case cst.For() | cst.While() if child is parent.orelse and binds(parent, name.value):
                raise Ambiguous
            case cst.Try() | cst.TryStar() | cst.Match() if binds(parent, name.value):
                raise Ambiguous
            case cst.FunctionDef() if child is parent.body:
                return _of_function(parent, name.value, found)
            case cst.Lambda() | cst.BaseComp() | cst.ClassDef() | cst.FunctionDef():
                raise Ambiguous
        child = parent
    return tuple(found)


def _check(source: Source, name: cst.Name) -> None:
    """Raise `Ambiguous` for a name that its function binds by more than statements of its own."""
    function = source.enclosing(name)
    if function is None:
        return
    listed, body = function.node.params, function.node.body
    starred = [s for s in (listed.star_arg, listed.star_kwarg) if isinstance(s, cst.Param)]
    declared: list[cst.NameItem] = [
        *(item for statement in descendants(body, cst.Global) for item in statement.names),
        *(item for statement in descendants(body, cst.Nonlocal) for item in statement.names),
    ]
    if any(
        each.value == name.value
        for each in (*(d.name for d in declared), *(s.name for s in starred))
    ):
        raise Ambiguous
    for kind in (cst.NamedExpr, cst.WithItem, cst.Del):
        if any(binds(node, name.value) for node in descendants(body, kind)):
            raise Ambiguous


def _of_function(function: cst.FunctionDef, name: str, found: _Found) -> tuple[Binder, ...]:
    listed = function.params
    params = (*listed.posonly_params, *listed.params, *listed.kwonly_params)
    return (*found, *(p for p in params if p.name.value == name))


def _around(loop: cst.For | cst.While, name: str, found: _Found) -> None:
    """What a round of a loop, or what follows the loop, may have of an earlier round."""
    if not binds(loop.body, name):
        return
    if any(True for kind in (cst.Break, cst.Continue) for _ in descendants(loop.body, kind)):
        _anything(loop.body, name, found)
    else:
        _backwards(_statements(loop.body), name, found)


def _anything(node: cst.CSTNode, name: str, found: _Found) -> None:
    """All below a node that assigns the name, wherever a round may have ended."""
    for line in descendants(node, cst.SimpleStatementLine):
        for small in line.body:
            if binds(small, name):
                found[_binder(small)] = None
    for loop in descendants(node, cst.For):
        if name in names_in(loop.target):
            found[loop] = None
    others = (cst.Try, cst.TryStar, cst.Match, cst.SimpleStatementSuite)
    for kind in others:
        if any(binds(other, name) for other in descendants(node, kind)):
            raise Ambiguous


def _backwards(statements: Sequence[cst.CSTNode], name: str, found: _Found) -> bool:
    """Take in what the statements may leave a name with; whether all ways through assign it."""
    for statement in reversed(statements):
        if isinstance(statement, cst.FunctionDef | cst.ClassDef):
            if statement.name.value == name:
                raise Ambiguous
            continue
        if not binds(statement, name):
            continue
        match statement:
            case cst.SimpleStatementLine():
                if _backwards(statement.body, name, found):
                    return True
            case cst.If():
                if _of_branches(statement, name, found):
                    return True
            case cst.For() | cst.While() if statement.orelse is None:
                if isinstance(statement, cst.For) and name in names_in(statement.target):
                    found[statement] = None
                _around(statement, name, found)
            case cst.BaseSmallStatement():
                found[_binder(statement)] = None
                return True
            case _:
                raise Ambiguous
    return False


def _of_branches(statement: cst.If, name: str, found: _Found) -> bool:
    in_body = _backwards(_statements(statement.body), name, found)
    match statement.orelse:
        case cst.If() as other:
            return _of_branches(other, name, found) and in_body
        case cst.Else(body=body):
            return _backwards(_statements(body), name, found) and in_body
    return False


def _statements(suite: cst.BaseSuite) -> Sequence[cst.CSTNode]:
    assert isinstance(suite, cst.IndentedBlock | cst.SimpleStatementSuite)
    return suite.body


def _binder(statement: cst.CSTNode) -> Binder:
    """A statement that binds a name, if it is an assignment."""
    if not isinstance(statement, cst.Assign | cst.AnnAssign | cst.AugAssign):
        raise Ambiguous
    return statement
