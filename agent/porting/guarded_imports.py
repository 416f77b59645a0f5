"""Imports of Triton that may fail: what stands in for it then goes, for a port needs none.

    try:
        import triton
        HAVE_TRITON = True
    except ImportError:
        triton = MagicMock()
        HAVE_TRITON = False

A port does what the file does with Triton: of this, `HAVE_TRITON = True` is left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import libcst as cst

from agent.porting.assignments import Edit
from agent.syntax import Source, descendants

FAILURES = frozenset(("ImportError", "ModuleNotFoundError", "Exception", "BaseException"))


def is_triton(name: str) -> bool:
    """Whether a module is Triton's."""
    return name.partition(".")[0] == "triton"


def imports_triton(node: cst.CSTNode) -> bool:
    """Whether a small statement imports something of Triton's."""
    if isinstance(node, cst.Import):
        return any(is_triton(alias.evaluated_name) for alias in node.names)
    if isinstance(node, cst.ImportFrom) and node.module is not None and not node.relative:
        return is_triton(cst.helpers.get_full_name_for_node(node.module) or "")
    return False


def stand_ins(source: Source, outside: Collection[cst.CSTNode]) -> dict[cst.CSTNode, Edit]:
    """The edits that take out what a file does without Triton.

    Args:
        source: it.
        outside: the nodes of its host code.
    """
    names = set(_imported(source))
    edits: dict[cst.CSTNode, Edit] = {}
    for node in outside:
        if isinstance(node, cst.SimpleStatementLine) and _replaces(node, names):
            if source.enclosing(node) is not None:
                continue  # a variable of the function's own
            edits[node] = _without
    for node in outside:
        match node:
            case cst.If(body=cst.IndentedBlock(body=body), orelse=None) if all(
                each in edits for each in body
            ):
                edits[node] = _without
            case cst.ExceptHandler() if _fails(node, source):
                edits[node] = _same  # it goes with the `try` around it
    return edits


def unguarded(source: Source) -> dict[cst.CSTNode, Edit]:
    """The edits that leave of such a `try` what it does with Triton."""
    found: dict[cst.CSTNode, Edit] = {}
    for node in descendants(source.module, cst.Try):
        if node.handlers and all(_fails(handler, source) for handler in node.handlers):
            found[node] = _body
    return found


def _fails(handler: cst.ExceptHandler, source: Source) -> bool:
    """Whether it is for want of Triton alone: nothing else is imported before it."""
    around = next(source.ancestors(handler))
    if not isinstance(around, cst.Try) or around.finalbody is not None:
        return False
    small = [
        each
        for line in around.body.body
        for each in (line.body if isinstance(line, cst.SimpleStatementLine) else ())
    ]
    imports = [e for kind in (cst.Import, cst.ImportFrom) for e in descendants(around.body, kind)]
    if not any(map(imports_triton, small)) or not all(map(imports_triton, imports)):
        return False
    caught = handler.type
    kinds = [e.value for e in caught.elements] if isinstance(caught, cst.Tuple) else [caught]
    return all(k is None or (isinstance(k, cst.Name) and k.value in FAILURES) for k in kinds)


def _imported(source: Source) -> Iterator[str]:
    """The names under which a file has modules of Triton's and what is in them."""
    for node in descendants(source.module, cst.Import):
        for alias in node.names:
            if is_triton(alias.evaluated_name):
                yield alias.evaluated_alias or "triton"
    for each in descendants(source.module, cst.ImportFrom):
        if imports_triton(each) and not isinstance(each.names, cst.ImportStar):
            for alias in each.names:
                yield alias.evaluated_alias or alias.evaluated_name


def _replaces(line: cst.SimpleStatementLine, names: Collection[str]) -> bool:
    """Whether a line only assigns to names of Triton: `tl = None`, `triton.jit = plain`."""
    targets: list[cst.BaseExpression] = []
    for small in line.body:
        if not isinstance(small, cst.Assign):
            return False
        targets += [target.target for target in small.targets]
    for number, target in enumerate(targets):
        while isinstance(target, cst.Attribute):
            target = target.value
        targets[number] = target
    return all(isinstance(target, cst.Name) and target.value in names for target in targets)


def _without(_: cst.CSTNode) -> cst.RemovalSentinel:
    return cst.RemoveFromParent()


def _same(new: cst.CSTNode) -> cst.CSTNode:
    return new


def _body(new: cst.Try) -> cst.FlattenSentinel[cst.BaseStatement] | cst.RemovalSentinel:
    """The statements of a `try` without it."""
    kept = [*new.body.body, *(new.orelse.body.body if new.orelse is not None else ())]
    lines = [line for line in kept if not isinstance(line, cst.BaseSmallStatement)]
    if not lines:
        return cst.RemoveFromParent()
    first, *rest = lines
    above = [*new.leading_lines, *(line for line in first.leading_lines if line.comment)]
    return cst.FlattenSentinel([first.with_changes(leading_lines=above), *rest])
