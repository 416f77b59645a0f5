"""What a port no longer needs: options that only Triton's launches took, imports that idle."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import chain

import libcst as cst

from agent.analysis.common.dialect import Launch
from agent.analysis.common.purity import is_pure
from agent.analysis.triton.dialect import ROUNDING
from agent.porting.assignments import Edit
from agent.syntax import Source, children, descendants

PURE = (*ROUNDING, *(f"{module}{name}" for module in ("", "builtins.") for name in (
    "int", "len", "max", "min"
)))  # fmt: skip


# --- options of launches -------------------------------------------------------------------------


def idle_options(source: Source, launches: Sequence[Launch]) -> dict[cst.CSTNode, Edit]:
    """The edits that take out what only dropped options read: `num_warps = 8`.

    Args:
        source: it.
        launches: all of the file; the options that no parameter takes are dropped.
    """
    options = [value for launch in launches for value in launch.hints.values()]
    read = {name for option in options for name in descendants(option, cst.Name)}
    edits: dict[cst.CSTNode, Edit] = {}
    for host in dict.fromkeys(launch.function for launch in launches):
        if host is None:
            continue
        names = dict.fromkeys(n.value for n in read if source.enclosing(n) is host)
        idle = [each for name in names for each in _idle(source, host.node, name, read)]
        edits |= dict.fromkeys(_gone(source, host.node, idle), _without)
    return edits


def _idle(
    source: Source, host: cst.FunctionDef, name: str, read: Collection[cst.CSTNode]
) -> list[cst.CSTNode]:
    """The assignments of a variable of which nothing but dropped options read."""
    found: list[cst.CSTNode] = []
    targets: set[cst.CSTNode] = set()
    for each in descendants(host.body, cst.Assign):
        target = each.targets[0].target
        if isinstance(target, cst.Name) and target.value == name and len(each.targets) == 1:
            if not _is_pure(source, each.value):
                return []
            found.append(each)
            targets |= {target, *descendants(each.value, cst.Name)}
    uses = (each for each in _read_names(host) if each.value == name)
    return found if all(each in read or each in targets for each in uses) else []


def _gone(
    source: Source, host: cst.FunctionDef, idle: Collection[cst.CSTNode]
) -> Iterator[cst.CSTNode]:
    """The statements that hold nothing else: lines, and branches of one condition."""

    def is_gone(node: cst.CSTNode | None) -> bool:
        match node:
            case cst.If():
                return _is_pure(source, node.test) and is_gone(node.body) and is_gone(node.orelse)
            case cst.Else():
                return is_gone(node.body)
            case cst.IndentedBlock() | cst.SimpleStatementSuite() | cst.SimpleStatementLine():
                return all(map(is_gone, node.body))
        return node is None or node in idle

    left: list[cst.CSTNode] = [host.body]
    while left:
        node = left.pop()
        if isinstance(node, cst.SimpleStatementLine | cst.If) and is_gone(node):
            yield node
        else:
            left.extend(children(node))


def _is_pure(source: Source, node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.IfExp):
        return all(_is_pure(source, each) for each in (node.test, node.body, node.orelse))
    return is_pure(source, node, PURE)


def _read_names(node: cst.CSTNode) -> Iterator[cst.Name]:
    """The names in a node: no attributes, no keywords."""
    inner: set[cst.CSTNode] = {each.attr for each in descendants(node, cst.Attribute)}
    inner |= {each.keyword for each in descendants(node, cst.Arg) if each.keyword is not None}
    return (name for name in descendants(node, cst.Name) if name not in inner)


# --- lists of configs ----------------------------------------------------------------------------


def idle_configs(
    source: Source, tuners: Collection[cst.Decorator], config: str
) -> frozenset[cst.CSTNode]:
    """The statements of the module that only made the configs of tuners.

    Args:
        source: it.
        tuners: decorators that a port has not.
        config: what makes one config.
    """
    defined = dict(_defined(source.module))
    made: dict[str, cst.CSTNode] = {}

    def makes(name: str, above: Collection[str]) -> bool:
        """Whether a name is a list of configs, or what one is made by."""
        if name in made or name not in defined or name in above:
            return name in made
        inner = [each.value for each in _read_names(defined[name])]
        others = [makes(each, {*above, name}) for each in dict.fromkeys(inner)]
        attributes = descendants(defined[name], cst.Attribute)
        names = descendants(defined[name], cst.Name)
        if any(others) or any(source.name(each) == config for each in chain(attributes, names)):
            made[name] = defined[name]
        return name in made

    for tuner in tuners:
        for each in _read_names(tuner):
            makes(each.value, ())
    # What only chooses among them goes with them: `keep` of `filter(keep, configs)`.
    left = [*tuners, *made.values()]
    while left:
        names = {each.value for each in _read_names(left.pop())} - made.keys()
        for name in names & defined.keys():
            if isinstance(defined[name], cst.FunctionDef):
                made[name] = defined[name]
                left.append(defined[name])
    strings = {s.evaluated_value for s in descendants(source.module, cst.SimpleString)}
    while True:
        inside = {n for node in (*tuners, *made.values()) for n in _read_names(node)}
        used = {n.value for n in _read_names(source.module) if n not in inside} | strings
        if used.isdisjoint(made):
            return frozenset(made.values())
        made = {name: node for name, node in made.items() if name not in used}


def _defined(module: cst.Module) -> Iterator[tuple[str, cst.CSTNode]]:
    """The functions and variables of a module that one statement alone defines."""
    for statement in module.body:
        match statement:
            case cst.FunctionDef(decorators=()):
                yield statement.name.value, statement
            case cst.SimpleStatementLine(
                body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))])]
            ):
                yield name, statement
            case cst.SimpleStatementLine(
                body=[cst.AnnAssign(target=cst.Name(value=name), value=cst.BaseExpression())]
            ):
                yield name, statement


# --- imports -------------------------------------------------------------------------------------


def idle_imports(source: Source, text: str, kept: str) -> dict[cst.CSTNode, Edit]:
    """The edits that take out imports that the origin uses and its port does not.

    Args:
        source: the origin.
        text: the port.
        kept: a name that stays imported.
    """
    gone = _used(source) - _used(Source(text)) - {kept}
    edits: dict[cst.CSTNode, Edit] = {}
    for line in descendants(source.module, cst.SimpleStatementLine):
        only = line.body[0]
        if len(line.body) > 1 or not isinstance(only, cst.Import | cst.ImportFrom):
            continue
        if isinstance(only.names, cst.ImportStar):
            continue
        left = [alias for alias in only.names if _bound(alias) not in gone]
        if not left:
            edits[line] = _without
        elif len(left) < len(only.names):
            left[-1] = left[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
            edits[only] = lambda new, names=tuple(left): new.with_changes(names=names)  # type: ignore[misc]
    return edits


def _bound(alias: cst.ImportAlias) -> str:
    """The name that an import gives."""
    return alias.evaluated_alias or alias.evaluated_name.partition(".")[0]


def _used(source: Source) -> frozenset[str]:
    """The names that a file has besides those of its imports; strings may stand for some."""
    module = source.module
    imports = chain(descendants(module, cst.Import), descendants(module, cst.ImportFrom))
    inside = {name for each in imports for name in descendants(each, cst.Name)}
    names = {name.value for name in _read_names(module) if name not in inside}
    strings = (s.evaluated_value for s in descendants(module, cst.SimpleString))
    return frozenset(names | {s for s in strings if isinstance(s, str)})


def _without(_: cst.CSTNode) -> cst.RemovalSentinel:
    return cst.RemoveFromParent()
