"""Adding imports to a file where they belong: standard library, others; plain ones, then `from`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import TypeAlias

import libcst as cst

from agent.analysis.common.module_names import only_for_checkers
from agent.syntax import Source, descendants

Statement: TypeAlias = cst.SimpleStatementLine | cst.BaseCompoundStatement


def imports_anywhere(source: Source, module: str) -> bool:
    """Whether some statement of the file imports a module or what is in it, wherever it stands."""
    return re.search(rf"(?m)^[ \t]*(import|from) {re.escape(module)}\b", source.text) is not None


def module_named(source: Source, module: str) -> str | None:
    """How the file names a module that it imports: 'ct' after `import cuda.tile as ct`.

    The import may stand in a `try`, but in no function, and not for type checkers alone.
    """
    package, _, last = module.rpartition(".")
    for statement in source.module.body:
        if isinstance(statement, cst.FunctionDef | cst.ClassDef):
            continue
        for imported in descendants(statement, cst.Import):
            for alias in imported.names:
                if _dotted(alias.name) == module and not only_for_checkers(source, imported):
                    named = alias.asname.name if alias.asname else alias.name
                    return _dotted(named)
        for taken in descendants(statement, cst.ImportFrom):
            if taken.module is None or _dotted(taken.module) != package or taken.relative:
                continue
            for alias in () if isinstance(taken.names, cst.ImportStar) else taken.names:
                if _dotted(alias.name) == last and not only_for_checkers(source, taken):
                    return _dotted(alias.asname.name if alias.asname else alias.name)
    return None


def imports_name(source: Source, module: str, name: str, before: int | None = None) -> bool:
    """Whether the file says `from module import name`, at its top and under that name.

    Args:
        source: the file.
        module: what it is imported from.
        name: what is imported.
        before: no statement from this one on counts.
    """
    return any(
        f.module is not None
        and _dotted(f.module) == module
        and not isinstance(f.names, cst.ImportStar)
        and any(a.asname is None and _dotted(a.name) == name for a in f.names)
        for statement in source.module.body[:before]
        if _is_import(statement)
        for f in descendants(statement, cst.ImportFrom)
    )


def with_imports(body: Sequence[Statement], texts: Sequence[str], newline: str) -> list[Statement]:
    """The statements of a module with more imports among those at its top."""
    statements = list(body)
    for text in texts:
        _insert(statements, cst.parse_statement(text + newline))
    return statements


def _insert(statements: list[Statement], added: Statement) -> None:
    assert isinstance(added, cst.SimpleStatementLine)
    places = [n for n, s in enumerate(statements) if _is_import(s)]
    order = next(
        (key for key in (_key, _key_by_module) if _are_sorted(statements, places, key)), None
    )
    alike = [n for n in places if _key(statements[n])[0] == _key(added)[0]]
    if order is None and alike:
        statements.insert(alike[-1] + 1, added)
        return
    key = order or _key
    at = next((n for n in places if key(statements[n]) > key(added)), None)
    if at is not None:
        follower = statements[at]
        above = list(follower.leading_lines)
        own = next((n for n, line in enumerate(above) if line.comment), len(above))
        follows = at - 1 in places and not _gap(statements[at - 1], added)
        statements[at] = follower.with_changes(leading_lines=[*_gap(added, follower), *above[own:]])
        statements.insert(at, added.with_changes(leading_lines=[] if follows else above[:own]))
        return
    at = places[-1] + 1 if places else int(_is_docstring(statements[:1]))
    leading = _gap(statements[at - 1], added) if places else [cst.EmptyLine()] * bool(at)
    statements.insert(at, added.with_changes(leading_lines=leading))


def _are_sorted(
    statements: Sequence[Statement],
    places: Sequence[int],
    key: Callable[[Statement], tuple[int, int, str]],
) -> bool:
    keys = [key(statements[n]) for n in places]
    return keys == sorted(keys)


def _gap(before: Statement, after: Statement) -> list[cst.EmptyLine]:
    return [] if _key(before)[0] == _key(after)[0] else [cst.EmptyLine(indent=False)]


def _is_import(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and isinstance(
        statement.body[0], cst.Import | cst.ImportFrom
    )


def _is_docstring(statements: Sequence[Statement]) -> bool:
    return any(
        isinstance(s, cst.SimpleStatementLine)
        and isinstance(s.body[0], cst.Expr)
        and isinstance(s.body[0].value, cst.SimpleString)
        for s in statements
    )


def _key(statement: Statement) -> tuple[int, int, str]:
    """Orders imports as ruff and isort do: `__future__`, standard library, others, relative."""
    assert isinstance(statement, cst.SimpleStatementLine)
    imported = statement.body[0]
    if isinstance(imported, cst.Import):
        name = _dotted(imported.names[0].name)
        return _section(name), 0, name
    assert isinstance(imported, cst.ImportFrom)
    if imported.relative or imported.module is None:
        return 3, 1, ""
    name = _dotted(imported.module)
    return _section(name), 1, name


def _key_by_module(statement: Statement) -> tuple[int, int, str]:
    """The order of a file that mixes `import` and `from`, isort's force_sort_within_sections."""
    section, _, name = _key(statement)
    return section, 0, name


def _section(name: str) -> int:
    root = name.partition(".")[0]
    return 0 if root == "__future__" else 1 if root in sys.stdlib_module_names else 2


def _dotted(node: cst.CSTNode) -> str:
    if isinstance(node, cst.Attribute):
        return f"{_dotted(node.value)}.{node.attr.value}"
    return node.value if isinstance(node, cst.Name) else ""
