"""Kernels that other files of the project launch: what those hand them has to do after a change.

The tests of a run need not call those files, so that a kernel which wants another argument would
pass them, and break the project.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping

from agent.importers import Importers, parsed
from agent.preflight import tree_of
from agent.repository import Repository
from agent.target import import_roots

LAUNCHERS = ("launch", "exhaustive_search", "autotune_launch")
"""Functions that are given a kernel of cuTile and launch it."""
TUNERS = ("autotune",)
BUILTIN = ("classmethod", "property", "staticmethod")
"""Decorators that make no kernel."""
CHANGES = frozenset({
    "append", "clear", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update",
})  # fmt: skip
"""Methods that change a table of kernels."""


def launched_elsewhere(repository: Repository, sha: str, kernel: str) -> Mapping[str, str]:
    """The kernels of a file that other files of a commit launch: name -> the first that does.

    Among them are functions of the file's own that launch what they are handed, where another file
    takes one, and tables of its kernels that another file changes: then it is not for the file to
    say what a launch of it may launch.

    Args:
        repository: the user's.
        sha: the commit.
        kernel: the file.
    """
    tree = tree_of(repository, sha)
    text = tree.read([kernel])[kernel]
    known = _functions(text)
    kernels = [name for name, node in known.items() if _is_decorated(node)]
    handed, tables = _launching_what_they_are_handed(known), _tables(text, kernels)
    imported: dict[str, list[str]] = {name: [name] for name in (*handed, *tables)}
    for name in kernels:  # one of a class comes with its class
        imported.setdefault(name.partition(".")[0], []).append(name)
    importers = Importers(tree, import_roots(tree, kernel))
    found: dict[str, str] = {}
    for taker in importers.takers(kernel, list(imported)):
        for name in imported[taker.name]:
            called = [f"{alias}{name.removeprefix(taker.name)}" for alias in taker.called]
            if name in tables:
                has_to_do = any(_is_changed(taker.text, each) for each in called)
            else:
                has_to_do = name in handed or any(launches(taker.text, each) for each in called)
            if name not in found and has_to_do:
                found[name] = taker.file
    return found


def broken_launches(before: str, after: str, elsewhere: Mapping[str, str]) -> str:
    """Why launches of other files would fail, in a line; empty where they would not.

    Args:
        before: the text of the kernel's file.
        after: its new text.
        elsewhere: kernel -> a file that launches it.
    """
    old, new = _functions(before), _functions(after)
    for name, file in elsewhere.items():
        if name not in old:
            continue
        if name not in new:
            return f"{file} launches {name}, which would be gone"
        if why := next(_changes(old[name], new[name]), ""):
            return f"{file} launches {name}, which would {why}"
    return ""


def launches(source: bytes, name: str) -> bool:
    """Whether a text launches a kernel: `name[grid](...)`, `ct.launch(stream, grid, name, ...)`.

    That of a class has a dotted name, `RMSNorm.forward[grid](...)`.
    """
    calls = [node for node in ast.walk(parsed(source)) if isinstance(node, ast.Call)]
    for call in calls:
        if isinstance(call.func, ast.Subscript):
            if any(_is_named(node, name) for node in ast.walk(call.func.value)):
                return True
        elif named(call.func) in LAUNCHERS and any(_is_named(node, name) for node in call.args):
            return True
    return False


def _is_named(node: ast.AST, name: str) -> bool:
    """Whether a name ends with another, part by part."""
    owner, _, last = name.rpartition(".")
    if named(node) != last:
        return False
    return not owner or (isinstance(node, ast.Attribute) and _is_named(node.value, owner))


def _launching_what_they_are_handed(known: Mapping[str, ast.FunctionDef]) -> list[str]:
    """The functions that are no business of other files and launch a parameter, or hand it on."""
    found: list[str] = []
    while True:
        before = len(found)
        for name, function in known.items():
            private = name.startswith("_") and "." not in name
            if name in found or not private or function.decorator_list:
                continue
            parameters = {*_parameters(function)}
            for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
                given = {named(each) for each in (*call.args, *(k.value for k in call.keywords))}
                if isinstance(call.func, ast.Subscript):
                    given = {named(each) for each in ast.walk(call.func.value)}
                elif named(call.func) not in (*LAUNCHERS, *found):
                    continue
                if given & parameters:
                    found.append(name)
                    break
        if len(found) == before:
            return found


def _tables(text: str | bytes, kernels: Collection[str]) -> list[str]:
    """The names of the module that are assigned something with kernels in it."""
    try:
        body = parsed(text).body
    except (SyntaxError, ValueError):
        return []
    return [
        target.id
        for line in body
        if isinstance(line, ast.Assign | ast.AnnAssign) and line.value is not None
        if {named(node) for node in ast.walk(line.value)} & {*kernels}
        for target in (line.targets if isinstance(line, ast.Assign) else [line.target])
        if isinstance(target, ast.Name)
    ]


def _is_changed(source: bytes, name: str) -> bool:
    """Whether a text changes a table of that name, or assigns another one."""
    for node in ast.walk(parsed(source)):
        match node:
            case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()) if named(value) == name:
                return True
            case ast.Attribute(value=value, attr=method) if named(value) == name:
                if method in CHANGES:
                    return True
            case ast.Attribute(attr=attribute, ctx=ast.Store() | ast.Del()) if attribute == name:
                return True
            case ast.AugAssign(target=target) if named(target) == name:
                return True
    return False


def named(node: ast.AST) -> str:
    """The last part of a name; empty for anything else."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _changes(old: ast.FunctionDef, new: ast.FunctionDef) -> Iterator[str]:
    ours, theirs = _parameters(old), _parameters(new)
    for name in ours.keys() - theirs.keys():
        yield f"no longer take {name}"
    given = _given(new)
    for name, default in theirs.items():
        needed = default is None or (_is_none(default) and not _may_be_none(new, name))
        if name not in ours and needed and name not in given:
            yield f"need {name}"
    if [*theirs][: len(ours)] != [*ours]:  # what is handed over by its place
        yield "take its parameters in another order"
    for name, default in ours.items():
        if ast.dump(default or ast.Pass()) != ast.dump(theirs[name] or ast.Pass()):
            yield f"have another {name} by default"
    if _tuned(new) and not _tuned(old):
        yield "tune what is handed to it"


def _functions(text: str | bytes) -> dict[str, ast.FunctionDef]:
    """Those of the module and, by dotted names, those of its classes."""
    try:
        body = parsed(text).body
    except (SyntaxError, ValueError):  # what does not parse fails elsewhere, with its reason
        return {}
    found = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    for owner in (node for node in body if isinstance(node, ast.ClassDef)):
        methods = (node for node in owner.body if isinstance(node, ast.FunctionDef))
        found |= {f"{owner.name}.{method.name}": method for method in methods}
    return found


def _is_decorated(function: ast.FunctionDef) -> bool:
    """Whether it may be a kernel."""
    return any(named(each) not in BUILTIN for each in function.decorator_list)


def _parameters(function: ast.FunctionDef) -> dict[str, ast.expr | None]:
    """Each parameter with its default."""
    listed = function.args
    places = [*listed.posonlyargs, *listed.args]
    defaults: list[ast.expr | None] = [None] * (len(places) - len(listed.defaults))
    named = zip(listed.kwonlyargs, listed.kw_defaults, strict=True)
    return {a.arg: d for a, d in (*zip(places, [*defaults, *listed.defaults], strict=True), *named)}


def _is_none(default: ast.expr) -> bool:
    return isinstance(default, ast.Constant) and default.value is None


def _may_be_none(function: ast.FunctionDef, parameter: str) -> bool:
    """Whether the body asks: `if parameter is None`."""
    return any(
        isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Name)
        and node.left.id == parameter
        and isinstance(node.ops[0], ast.Is | ast.IsNot)
        for node in ast.walk(function)
    )


def _given(function: ast.FunctionDef) -> set[str]:
    """What decorators hand to it: the keys of `triton.heuristics({...})`, or of `dict(...)`."""
    nodes = [node for decorator in function.decorator_list for node in ast.walk(decorator)]
    keys = [key for node in nodes if isinstance(node, ast.Dict) for key in node.keys]
    found = {k.value for k in keys if isinstance(k, ast.Constant) and isinstance(k.value, str)}
    made = [n for n in nodes if isinstance(n, ast.Call) and named(n.func) == "dict"]
    return found | {given.arg for call in made for given in call.keywords if given.arg}


def _tuned(function: ast.FunctionDef) -> bool:
    called = (d.func if isinstance(d, ast.Call) else d for d in function.decorator_list)
    return any(ast.unparse(each).rpartition(".")[2] in TUNERS for each in called)
