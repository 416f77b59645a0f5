"""Whether what a kernel's file calls asks tensors for `is_cuda`: none of the CPU's will do. Pure.

The guard may stand in a helper of another module, `check_inputs(x)`. Of what is imported only the
definitions count that are named, with what these name in turn.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from agent.importers import Importers, Tree, parsed

MOST_MODULES = 4
"""Between a kernel's file and a guard."""
_GUARD = re.compile(r"\.is_cuda\b(?!\s*\()")
"""Of a tensor it is no function."""
_WORD = re.compile(r"[^\W\d]\w*")


def asks_for_gpu(tree: Tree, roots: list[str], kernel: str, text: str) -> bool:
    """Whether a file, or what it names of others of its project, asks for `is_cuda`.

    Args:
        tree: the project.
        roots: folders, relative to its root, from which modules are imported.
        kernel: the file, relative to the root.
        text: what it holds.
    """
    importers = Importers(tree, roots)
    reached = {kernel: text}
    seen: set[tuple[str, str]] = set()
    for _ in range(MOST_MODULES + 1):
        if any(map(_GUARD.search, reached.values())):
            return True
        found: dict[str, str] = {}
        for path, part in reached.items():
            words = {*_WORD.findall(part)}
            for file in importers.imported(path):
                source = tree.read([file])[file].decode("utf-8", errors="replace")
                named = "\n".join(_named(source, words))
                if named and (file, named) not in seen:
                    seen.add((file, named))
                    found[file] = f"{found.get(file, '')}\n{named}"
        reached = found
    return False


def _named(source: str, words: set[str]) -> Iterator[str]:
    """The definitions of a text that are named, and those that these name."""
    try:
        body = parsed(source).body
    except (SyntaxError, ValueError):
        return
    left = {name: node for node in body for name in _defines(node)}
    wanted = words & left.keys()
    while wanted:
        parts = [ast.unparse(left.pop(name)) for name in sorted(wanted)]
        yield from parts
        wanted = left.keys() & {word for part in parts for word in _WORD.findall(part)}


def _defines(node: ast.stmt) -> Iterator[str]:
    """The names that a statement at the top of a file gives a meaning to."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            yield from (each.id for each in targets if isinstance(each, ast.Name))
        case ast.If(body=body, orelse=other) | ast.Try(body=body, orelse=other):
            for inner in (*body, *other):
                yield from _defines(inner)
