"""Functions of other files that a port takes along, so that it needs no Triton for them. Pure.

A file of helpers imports Triton for its kernels, and has `calculate_settings(n)` for the host. What
is taken rests on nothing of its file but constants, imports and functions like it.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass
class _Taken:
    """What stands in a text in the place of an import."""

    imports: dict[str, None] = field(default_factory=dict)
    definitions: dict[str, str] = field(default_factory=dict)


def with_functions(
    text: str,
    module_text: Callable[[str], str | None],
    is_of_project: Callable[[str], bool] = lambda _: False,
) -> tuple[str, list[str]]:
    """A text with functions in the place of their imports, and their names.

    Args:
        text: the file.
        module_text: what a module holds that functions are to be taken from, by the name in the
            import, `.utils`; None for all others.
        is_of_project: whether a module is: what is taken may import others only.
    """
    body = ast.parse(text).body
    lines = text.splitlines(keepends=True)
    used = _in_functions(body)
    all_taken, names = _Taken(), []
    for node in body:
        if not isinstance(node, ast.ImportFrom):
            continue
        theirs = module_text("." * node.level + (node.module or ""))
        if theirs is None:
            continue
        left = []
        same = {alias.name for alias in node.names if alias.asname is None}  # it is theirs
        bound = {n: ast.unparse(each) for each in body for n in _binds(each) if n not in same}
        of = _Theirs(theirs, bound, is_of_project)
        for alias in node.names:
            taken = _Taken(dict(all_taken.imports), dict(all_taken.definitions))
            is_free = alias.asname is None and alias.name in used
            if is_free and of.take(alias.name, taken):
                all_taken = taken
                names.append(alias.name)
            else:
                left.append(alias)
        if len(left) < len(node.names):
            first, last = node.lineno - 1, node.end_lineno or node.lineno
            lines[first:last] = ["\n"] * (last - first)  # what is behind stays on its line
            if left:
                kept = ast.ImportFrom(node.module, left, node.level)
                lines[first] = f"{ast.unparse(kept)}\n"
    if not names:
        return text, []
    place = max(n.end_lineno or 0 for n in body if isinstance(n, ast.Import | ast.ImportFrom))
    added = [f"{each}\n" for each in all_taken.imports]
    added += [f"\n\n{each}\n" for each in all_taken.definitions.values()]
    return "".join([*lines[:place], *added, *lines[place:]]), names


class _Theirs:
    """A file that definitions are taken from."""

    def __init__(
        self, text: str, bound: dict[str, str], is_of_project: Callable[[str], bool]
    ) -> None:
        self._text, self._body = text, ast.parse(text).body
        self._bound = bound
        """What the names mean where they are taken to."""
        self._is_of_project = is_of_project

    def take(self, name: str, to: _Taken) -> bool:
        """Whether a definition can stand alone, with what it needs; it is taken then."""
        statements = [node for node in self._body if name in _binds(node)]
        if len(statements) != 1:
            return False
        (node,) = statements
        if name in self._bound:
            return self._bound[name] == ast.unparse(node) and isinstance(node, ast.Import)
        if isinstance(node, ast.Import | ast.ImportFrom):
            return self._take_import(node, name, to)
        is_constant = isinstance(node, ast.Assign) and _is_constant(node.value)
        if not is_constant and not (isinstance(node, ast.FunctionDef) and not node.decorator_list):
            return False
        if name in to.definitions:  # or that one is being taken, and calls this
            return True
        to.definitions[name] = ast.get_source_segment(self._text, node) or ast.unparse(node)
        return all(self.take(each, to) for each in sorted(_free(node) - {name}))

    def _take_import(self, node: ast.Import | ast.ImportFrom, name: str, to: _Taken) -> bool:
        if isinstance(node, ast.ImportFrom):
            modules, is_near = [node.module or ""], node.level > 0
        else:
            modules, is_near = [alias.name for alias in node.names], False
        if is_near or any(map(self._is_of_project, modules)):
            return False
        to.imports[ast.unparse(_only(node, name))] = None
        return True


def _only(node: ast.Import | ast.ImportFrom, name: str) -> ast.Import | ast.ImportFrom:
    """Of an import what gives one name."""
    (alias,) = [a for a in node.names if (a.asname or a.name.partition(".")[0]) == name][:1]
    if isinstance(node, ast.Import):
        return ast.Import([alias])
    return ast.ImportFrom(node.module, [alias], node.level)


def _binds(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from (a.asname or a.name.partition(".")[0] for a in names)
        case ast.Assign(targets=targets):
            yield from (t.id for t in targets if isinstance(t, ast.Name))
        case ast.If() | ast.Try() | ast.With() | ast.For() | ast.AnnAssign() | ast.AugAssign():
            for each in ast.walk(node):
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                    yield each.id
                elif isinstance(each, ast.FunctionDef | ast.ClassDef):
                    yield each.name
                elif isinstance(each, ast.Import | ast.ImportFrom):
                    yield from (a.asname or a.name.partition(".")[0] for a in each.names)


def _is_constant(node: ast.expr) -> bool:
    numbers = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    return all(isinstance(each, numbers) for each in ast.walk(node))


def _free(node: ast.stmt) -> set[str]:
    """The names of a definition that are none of its own, nor Python's."""
    read: set[str] = set()
    own: set[str] = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            (read if isinstance(each.ctx, ast.Load) else own).add(each.id)
        elif isinstance(each, ast.arg):
            own.add(each.arg)
        elif isinstance(each, ast.FunctionDef | ast.ClassDef):
            own.add(each.name)
        elif isinstance(each, ast.Import | ast.ImportFrom):
            own.update(a.asname or a.name.partition(".")[0] for a in each.names)
    return {name for name in read - own if not hasattr(builtins, name)}


def _in_functions(body: list[ast.stmt]) -> set[str]:
    """Names that functions without decorators of Triton read when they are called, and nothing
    reads when the file is imported."""
    inside: set[str] = set()
    outside: set[str] = set()
    left: list[ast.AST] = list(body)
    while left:
        node = left.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            is_host = not any("jit" in ast.unparse(each) for each in node.decorator_list)
            names = {e.id for part in node.body for e in ast.walk(part) if isinstance(e, ast.Name)}
            (inside if is_host else outside).update(names)
            left += [*node.decorator_list, node.args]
        elif isinstance(node, ast.Name):
            outside.add(node.id)
        else:
            left += ast.iter_child_nodes(node)
    return inside - outside
