"""Drops assignments that nothing reads any more after an edit.

An entry rewrites what it knows; what only the old text needed it leaves behind. A name that nothing
had read before is its author's matter and stays, and so does what may do more than give a value.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import libcst as cst

from agent.rewriting.common.dropping import Edit, dropping
from agent.syntax import Function, Source, descendants

PASSES = 8
"""What only a dropped assignment read is dropped after it."""
COUNTING = frozenset(
    {
        *("cdiv", "next_power_of_2", "program_id", "num_programs", "arange", "bid", "num_blocks"),
        *("min", "max", "len", "int", "float", "range", "minimum", "maximum"),
        *("stride", "size", "numel", "dim", "element_size", "to", "astype", "reshape", "item"),
    }
)
"""The last names of functions and methods that do nothing but give a value."""
LANGUAGES = ("triton.language.", "cuda.tile.")
ACTING = re.compile(r"store|scatter|atomic|print|assert|barrier|asm|launch|wait|copy|signal")
"""What of a kernel language does more than that."""


def without_dead_names(before: str, after: str) -> str:
    """The text after an edit, without the assignments that only the text before it needed."""
    if not _may_leave_some(before, after):
        return after
    read = {function.name: _reads(function.node) for function in Source(before).functions}
    for _ in range(PASSES):
        source, edits = Source(after), dict[cst.CSTNode, Edit]()
        for function in source.functions:
            dead = list(_dead(source, function, read.get(function.name, Counter())))
            for block in descendants(function.node.body, cst.IndentedBlock):
                edits |= dropping(block, dead)
        if not edits:
            break
        after = source.rewrite(edits)
    return after


def _may_leave_some(before: str, after: str) -> bool:
    """Whether a name that is given a value is there less often than before; parses nothing."""
    was, now = (Counter(re.findall(r"\w+", text)) for text in (before, after))
    return any(now[name] < was[name] for name in re.findall(r"(?m)^\s+(\w+) *=(?!=)", after))


def _dead(
    source: Source, function: Function, read_before: Counter[str]
) -> Iterator[cst.SimpleStatementLine]:
    """Statements that give a name a value which nothing reads and something had read."""
    reads, targets = _reads(function.node), _targets(function.node)
    kept = {each.name.value for each in descendants(function.node, cst.Param)}
    kept |= {each.name.value for each in descendants(function.node, cst.NameItem)}  # global
    found: dict[str, list[cst.SimpleStatementLine]] = {}
    for line in descendants(function.node.body, cst.SimpleStatementLine):
        name = _given(source, line)
        if name is not None and read_before[name] and not reads[name] and name not in kept:
            found.setdefault(name, []).append(line)
    for name, lines in found.items():
        if targets[name] == len(lines):
            yield from lines


def _targets(node: cst.CSTNode) -> Counter[str]:
    """Names that are assigned by `name = ...` below a node, by how often."""
    return Counter(
        target.target.value
        for target in descendants(node, cst.AssignTarget)
        if isinstance(target.target, cst.Name)
    )


def _reads(node: cst.CSTNode) -> Counter[str]:
    """Names that are read below a node, by how often."""
    parameters = Counter(each.name.value for each in descendants(node, cst.Param))
    keywords = Counter(
        each.keyword.value for each in descendants(node, cst.Arg) if each.keyword is not None
    )
    attributes = Counter(each.attr.value for each in descendants(node, cst.Attribute))
    names = Counter(each.value for each in descendants(node, cst.Name))
    return names - _targets(node) - parameters - keywords - attributes


def _given(source: Source, line: cst.CSTNode) -> str | None:
    """The name that a statement gives a value, where that is all it does."""
    match line:
        case cst.SimpleStatementLine(
            body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name() as target)], value=value)]
        ):
            is_plain = all(_only_gives(source, call.func) for call in descendants(value, cst.Call))
            acts = (cst.NamedExpr, cst.Await, cst.Yield)
            does_more = any(True for kind in acts for _ in descendants(value, kind))
            return target.value if is_plain and not does_more else None
    return None


def _only_gives(source: Source, function: cst.BaseExpression) -> bool:
    """Whether a function is known to do nothing but give a value."""
    named = source.name(function) or ""
    if named.startswith(LANGUAGES):
        return not ACTING.search(named.rpartition(".")[2])
    match function:
        case cst.Name(value=name) | cst.Attribute(attr=cst.Name(value=name)):
            return name in COUNTING
    return False
