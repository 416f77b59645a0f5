"""Dictionaries that a file writes out and nothing in it changes: `CONFIG = {"tile_m": 64}`."""

from __future__ import annotations

import libcst as cst

from agent.syntax import Source

READING_METHODS = frozenset({"copy", "get", "items", "keys", "values"})
READING = frozenset(f"builtins.{name}" for name in ("dict", "len", "print", "repr", "str"))
"""Functions that leave what they are given as it is."""


def entry_of(source: Source, written: cst.Dict, key: str) -> cst.BaseExpression | None:
    """What a dictionary always holds under a string; None where that is not certain."""
    found = None
    for element in written.elements:
        if not isinstance(element, cst.DictElement):
            return None
        if not isinstance(element.key, cst.SimpleString):
            return None
        if element.key.evaluated_value == key:
            found = element.value
    return found if found is not None and _stays(source, written, set()) else None


def _stays(source: Source, value: cst.BaseExpression, seen: set[cst.CSTNode]) -> bool:
    """Whether what a dictionary is used for, there and by its names, leaves it as it is."""
    node: cst.CSTNode = value
    for around in source.ancestors(value):
        match around:
            case cst.IfExp() if node is not around.test:
                node = around
                continue
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Name() as name)]):
                return _name_stays(source, name, seen)
            case cst.AnnAssign(target=cst.Name() as name):
                return _name_stays(source, name, seen)
            case cst.Subscript():
                return node is around.value and _is_read(source, around)
            case cst.Attribute(attr=cst.Name(value=method)):
                return method in READING_METHODS
            case cst.Arg():
                call = next(source.ancestors(around))
                called = source.name(call.func) if isinstance(call, cst.Call) else None
                return around.star == "**" or called in READING
            case cst.FormattedStringExpression() | cst.ComparisonTarget():
                return True
        return False
    return False


def _name_stays(source: Source, name: cst.Name, seen: set[cst.CSTNode]) -> bool:
    if name in seen:
        return True
    seen.add(name)
    uses = [use for a in source.assignments(name) for use in source.uses(a)]
    return all(_stays(source, use, seen) for use in uses)


def _is_read(source: Source, entry: cst.Subscript) -> bool:
    """Whether an entry is no target, by itself or among others."""
    node: cst.CSTNode = entry
    for around in source.ancestors(entry):
        match around:
            case cst.AssignTarget() | cst.Del():
                return False
            case cst.AugAssign() | cst.For() | cst.CompFor() | cst.AnnAssign():
                return node is not around.target
            case cst.Element() | cst.StarredElement() | cst.Tuple() | cst.List():
                node = around
            case _:
                return True
    return True
