"""Lines of a host that computed an option of a launch, once that says a number in their place."""

from __future__ import annotations

from collections.abc import Collection

import libcst as cst

from agent.analysis.common.purity import is_pure
from agent.analysis.triton.dialect import TRITON
from agent.rewriting.triton.edits import Edit
from agent.rewriting.triton.launch_options import DEFAULTS
from agent.rewriting.triton.overriding import KNOWN, lines_of
from agent.syntax import Edits, Function, Source, descendants


def with_options(source: Source, edits: Edits) -> str:
    """The text after edits of options, without the lines that only computed what they replace."""
    new = source.with_text(source.rewrite(edits))
    read = {
        (launch.function.name, given.value)
        for kernel in TRITON.kernels(source)
        for launch in kernel.launches
        for option in DEFAULTS
        if launch.function and isinstance(given := launch.hints.get(option), cst.Name)
    }
    unread: dict[cst.CSTNode, Edit] = {}
    for function in new.functions:
        for name in sorted(name for host, name in read if host == function.name):
            unread |= _dropping(new, function, name)
    return new.rewrite(unread) if unread else new.text


def _dropping(source: Source, function: Function, name: str) -> dict[cst.CSTNode, Edit]:
    """The edits that drop all lines that assign a name, where nothing but they reads it."""
    body = function.node.body
    nodes = [n for n in descendants(body, cst.Name) if n.value == name and not _says(source, n)]
    lines = next((found for node in nodes if (found := lines_of(source, function, node))), ())
    if not all(any(around in lines for around in source.ancestors(node)) for node in nodes):
        return {}
    blocks = [
        (block, gone)
        for block in descendants(body, cst.IndentedBlock)
        if (gone := [each for each in block.body if _is_gone(source, each, lines)])
    ]
    around = {inner for _, gone in blocks for each in gone for inner in _blocks_of(each)}
    kept = [(block, gone) for block, gone in blocks if block not in around]
    if body in around or any(len(gone) == len(block.body) for block, gone in kept):
        return {}
    return {block: _without(block, gone) for block, gone in kept}


def _says(source: Source, name: cst.Name) -> bool:
    """Whether a name is a keyword or an attribute, and no variable."""
    around = next(source.ancestors(name))
    return (isinstance(around, cst.Arg) and around.keyword is name) or (
        isinstance(around, cst.Attribute) and around.attr is name
    )


def _blocks_of(statement: cst.CSTNode) -> Collection[cst.CSTNode]:
    return tuple(descendants(statement, cst.IndentedBlock))


def _is_gone(source: Source, statement: cst.CSTNode, lines: Collection[cst.CSTNode]) -> bool:
    """Whether a statement is one of the lines, or a branch that holds nothing else."""
    match statement:
        case cst.If(test=test, body=cst.IndentedBlock(body=inner), orelse=orelse):
            return (
                is_pure(source, test, KNOWN)
                and all(_is_gone(source, each, lines) for each in inner)
                and (orelse is None or _is_gone(source, orelse, lines))
            )
        case cst.Else(body=cst.IndentedBlock(body=inner)):
            return all(_is_gone(source, each, lines) for each in inner)
    return statement in lines


def _without(block: cst.IndentedBlock, gone: Collection[cst.CSTNode]) -> Edit:
    """The edit of a block that drops statements, and the comments right above them."""

    def edit(updated: cst.IndentedBlock) -> cst.IndentedBlock:
        left: list[cst.BaseStatement] = []
        above: list[cst.EmptyLine] = []
        for was, now in zip(block.body, updated.body, strict=True):
            lines = list(getattr(now, "leading_lines", ()))
            if was in gone:
                blank = [n for n, line in enumerate(lines) if line.comment is None]
                above += lines[: blank[-1] + 1] if blank else []
                continue
            if above and lines and above[-1].comment is None and lines[0].comment is None:
                above.pop()
            left.append(now.with_changes(leading_lines=[*above, *lines]) if above else now)
            above = []
        return updated.with_changes(body=left)

    return edit
