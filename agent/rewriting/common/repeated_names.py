"""Gives a name that an edit adds its value once, where the edit does so before several statements.

An entry rewrites one launch after the other, each with the assignments above it that it needs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

import libcst as cst

from agent.rewriting.common.dropping import Edit, dropping
from agent.rewriting.common.preceding import preceded
from agent.syntax import Function, Source, descendants

_Chain = tuple[cst.CSTNode, ...]


def with_one_assignment_each(before: str, after: str) -> str:
    """The text after an edit, without assignments of a new name that say the same once more.

    The first one stays, where it is run before the others; where they are in branches of one
    choice, it goes above that. One whose value may change in between stays in each place.
    """
    known = set(re.findall(r"\w+", before))
    lines = Counter(re.findall(r"(?m)^\s+(\w+ = .+)$", after))
    repeats = sum(n - 1 for line, n in lines.items() if line.split()[0] not in known)
    for _ in range(repeats):
        source = Source(after)
        groups = (each for f in source.functions for each in _repeated(source, f, known))
        edits = next(filter(None, (_once(source, *group) for group in groups)), None)
        if edits is None:
            break
        after = source.rewrite(edits)
    return after


def _repeated(
    source: Source, function: Function, known: set[str]
) -> Iterator[tuple[Function, list[cst.SimpleStatementLine]]]:
    """Statements of a function that all give one new name one value; it has no other there."""
    found: dict[str, list[tuple[cst.SimpleStatementLine, cst.BaseExpression]]] = {}
    for line in descendants(function.node.body, cst.SimpleStatementLine):
        match line.body:
            case [cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=value)]:
                found.setdefault(name, []).append((line, value))
    bound = {each.value for each in _bound(function)}
    for name, given in found.items():
        codes = {source.code(value) for _, value in given}
        read = {each.value for _, value in given for each in descendants(value, cst.Name)}
        if name not in known and len(given) > 1 and len(codes) == 1 and not read & bound:
            yield function, [line for line, _ in given]


def _bound(function: Function) -> Iterator[cst.Name]:
    """Names that statements of a function give a value; its parameters have one all along."""
    kinds = (cst.AssignTarget, cst.AugAssign, cst.AnnAssign, cst.For, cst.NamedExpr)
    for kind in kinds:
        for each in descendants(function.node.body, kind):
            yield from descendants(each.target, cst.Name)  # type: ignore[attr-defined]
    for with_name in descendants(function.node.body, cst.AsName):
        yield from descendants(with_name, cst.Name)


def _once(
    source: Source, function: Function, statements: Sequence[cst.SimpleStatementLine]
) -> dict[cst.CSTNode, Edit]:
    """The edits that leave one of several statements that say the same."""
    chains = [_chain(source, function, line) for line in statements]
    first, *others = chains
    beyond = [node for chain in others for node in chain if node not in first]
    if any(isinstance(node, cst.With) for node in beyond):  # as of another device
        return {}
    if all(first[-2] in chain for chain in others):
        return _without(source, statements[1:])
    shared = [node for node in first if all(node in chain for chain in others)]
    inner = [node for chain in chains for node in chain[len(shared) : -1]]
    choice = shared[-1]
    if not isinstance(choice, cst.If) or not all(map(_is_branch, inner)):
        return {}
    while isinstance(outer := next(source.ancestors(choice)), cst.If):  # of an `elif`
        choice = outer
    gone = _without(source, statements)
    if not gone or not isinstance(next(source.ancestors(choice)), cst.IndentedBlock):
        return {}
    code = source.code(statements[0].with_changes(leading_lines=())).strip()
    return gone | {choice: partial(preceded, written=[code])}


def _without(
    source: Source, statements: Sequence[cst.SimpleStatementLine]
) -> dict[cst.CSTNode, Edit]:
    """The edits that drop all of these statements, none where one is all that its block holds."""
    blocks = [cst.ensure_type(next(source.ancestors(x)), cst.IndentedBlock) for x in statements]
    each = [dropping(block, statements) for block in dict.fromkeys(blocks)]
    return {node: edit for edits in each for node, edit in edits.items()} if all(each) else {}


def _chain(source: Source, function: Function, line: cst.CSTNode) -> _Chain:
    """A function, what of it holds a statement, and the statement, from the outside inwards."""
    chain = [line]
    for node in source.ancestors(line):
        chain.append(node)
        if node is function.node:
            break
    return tuple(reversed(chain))


def _is_branch(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.If | cst.Else | cst.IndentedBlock)
