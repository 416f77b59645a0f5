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
STRING = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
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
    was, now = (Counter(re.findall(r"\w+", STRING.sub("", text))) for text in (before, after))
    given = re.findall(r"(?m)^\s+(\w+(?:, *\w+)*) *=(?!=)", after)
    return any(now[name] < was[name] for names in given for name in re.findall(r"\w+", names))


def _dead(
    source: Source, function: Function, read_before: Counter[str]
) -> Iterator[cst.SimpleStatementLine]:
    """Statements that give a name a value which nothing reads and something had read."""
    reads, targets = _reads(function.node), _targets(function.node)
    kept = {each.name.value for each in descendants(function.node, cst.Param)}
    kept |= {each.name.value for each in descendants(function.node, cst.NameItem)}  # global
    found: dict[cst.SimpleStatementLine, tuple[str, ...]] = {}
    for line in descendants(function.node.body, cst.SimpleStatementLine):
        names = _given(source, line)
        if names and all(read_before[n] and not reads[n] and n not in kept for n in names):
            found[line] = names
    dropped = Counter(name for names in found.values() for name in names)
    for line, names in found.items():
        if all(targets[name] == dropped[name] for name in names):
            yield line


def _targets(node: cst.CSTNode) -> Counter[str]:
    """Names that are assigned by `name = ...` or `one, other = ...` below a node, by how often."""
    return Counter(
        name for target in descendants(node, cst.AssignTarget) for name in _names(target.target)
    )


def _names(target: cst.BaseExpression) -> tuple[str, ...]:
    """The names that a target consists of; none where it is anything else, too."""
    parts = [e.value for e in target.elements] if isinstance(target, cst.Tuple) else [target]
    names = [part.value for part in parts if isinstance(part, cst.Name)]
    return tuple(names) if len(names) == len(parts) else ()


def _reads(node: cst.CSTNode) -> Counter[str]:
    """Names that are read below a node, by how often."""
    parameters = Counter(each.name.value for each in descendants(node, cst.Param))
    keywords = Counter(
        each.keyword.value for each in descendants(node, cst.Arg) if each.keyword is not None
    )
    attributes = Counter(each.attr.value for each in descendants(node, cst.Attribute))
    names = Counter(each.value for each in descendants(node, cst.Name))
    return names - _targets(node) - parameters - keywords - attributes


def _given(source: Source, line: cst.CSTNode) -> tuple[str, ...]:
    """The names that a statement gives values, each its own, where that is all it does."""
    match line:
        case cst.SimpleStatementLine(
            body=[cst.Assign(targets=[cst.AssignTarget(target=target)], value=value)]
        ):
            names = _names(target)
            is_plain = all(_only_gives(source, call.func) for call in descendants(value, cst.Call))
            acts = (cst.NamedExpr, cst.Await, cst.Yield)
            does_more = any(True for kind in acts for _ in descendants(value, kind))
            each = value.elements if isinstance(value, cst.Tuple) else ()
            values = sum(isinstance(element, cst.Element) for element in each)
            unpacks = isinstance(target, cst.Tuple) and values != len(names)
            return names if is_plain and not does_more and not unpacks else ()
    return ()


def _only_gives(source: Source, function: cst.BaseExpression) -> bool:
    """Whether a function is known to do nothing but give a value."""
    named = source.name(function) or ""
    if named.startswith(LANGUAGES):
        return not ACTING.search(named.rpartition(".")[2])
    match function:
        case cst.Name(value=name) | cst.Attribute(attr=cst.Name(value=name)):
            return name in COUNTING
    return False
