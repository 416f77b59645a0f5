"""Functions of a module of which another one takes the place before anything can call them.

As where a file holds a kernel and its caller, and below them the same again with tests: calls of
the upper caller's name run the lower one, which launches the lower kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from agent.syntax.tree import children, names_in


def replaced(module: cst.Module) -> frozenset[cst.FunctionDef]:
    """Those of the module itself that a later one of their name replaces.

    Not where what the module runs between both names anything of its own: that may call the first
    one, or keep it.
    """
    found: set[cst.FunctionDef] = set()
    latest: dict[str, cst.FunctionDef] = {}
    own = {line.name.value for line in module.body if isinstance(line, _DEFINING)}
    for line in module.body:
        if own & set(_run_by(line)):
            latest.clear()
        if isinstance(line, cst.FunctionDef):
            if (earlier := latest.get(line.name.value)) is not None:
                found.add(earlier)
            latest[line.name.value] = line
    return frozenset(found)


_DEFINING = (cst.FunctionDef, cst.ClassDef)


def _run_by(node: cst.CSTNode) -> Iterator[str]:
    """The names that are read when a statement is run: a function's decorators and defaults."""
    if not isinstance(node, _DEFINING):
        if isinstance(node, cst.Name):
            yield node.value
        for child in children(node):
            yield from _run_by(child)
        return
    for decorator in node.decorators:
        yield from names_in(decorator)
    if isinstance(node, cst.FunctionDef):
        for parameter in children(node.params):
            yield from names_in(parameter)
        return
    for part in (*node.bases, *node.keywords):
        yield from names_in(part)
    yield from _run_by(node.body)
