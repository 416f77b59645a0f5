"""Which of the tests that reach a kernel through its package are about it. Read, not run.

A package that hands on a hundred operators is imported by a file of tests for each dozen of them:
what tests a kernel names what the kernel's file defines.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import TypeGuard

from agent.importers import Tree, parsed

_OPTION = re.compile(rb"addoption\(\s*[\"'](--[\w-]+)")


def chosen(
    tree: Tree, kernel: str, files: Sequence[str], whole: Collection[str], through: Iterable[str]
) -> list[str]:
    """Of files of tests those that are about a kernel, in order; all files where none seems to be.

    Of a file in which every test is, the file; else the tests that name what the kernel's file
    defines, or what a module through which it is reached makes of that.

    Args:
        tree: the commit.
        kernel: the file.
        files: of tests.
        whole: those that are taken in any case.
        through: the modules by which the others reach the kernel.
    """
    defined = {name for node in _module(tree, kernel).body for name in _defines(node)}
    wanted = {name for name in defined if not name.startswith("_")}
    for module in through:
        wanted = _reaching(_module(tree, module).body, wanted)
    taken: list[str] = []
    for file in files:
        body = _module(tree, file).body
        names = _reaching(body, wanted)
        tests = [node for node in body if _is_test(node)]
        about = [node.name for node in tests if _mentions(node, names)]
        if file in whole or (about and len(about) == len(tests)):
            taken.append(file)
        else:
            taken += [f"{file}::{name}" for name in about]
    return taken or list(files)


def loaded_together(tree: Tree, tests: Sequence[str]) -> tuple[list[str], list[str]]:
    """The files of tests that pytest can load in one go, and those that it cannot beside them.

    A `tests/conftest.py` and a `benchmark/conftest.py` may add an option of the same name. What
    lies in a folder that is called after tests stays, else what has more files.
    """
    by_conftest: dict[str, list[str]] = {}
    for test in tests:
        by_conftest.setdefault(_conftest(tree, test), []).append(test)
    kept: dict[str, frozenset[bytes]] = {}
    left_out: list[str] = []
    for conftest, files in sorted(by_conftest.items(), key=_preference):
        options = _options(tree, conftest) if conftest else frozenset()
        if any(options & others for others in kept.values()):
            left_out += files
        else:
            kept[conftest] = options
    return [test for test in tests if test not in left_out], left_out


def _preference(item: tuple[str, list[str]]) -> tuple[bool, int]:
    conftest, files = item
    return "test" not in str(PurePosixPath(conftest).parent), -len(files)


def _conftest(tree: Tree, test: str) -> str:
    """The nearest one above a test that adds options; empty where none does."""
    for folder in PurePosixPath(test).parents:
        path = str(folder / "conftest.py")
        if path in tree.files and _options(tree, path):
            return path
    return ""


def _options(tree: Tree, conftest: str) -> frozenset[bytes]:
    return frozenset(_OPTION.findall(tree.read([conftest])[conftest]))


def _reaching(body: Collection[ast.stmt], names: Collection[str]) -> set[str]:
    """The names, and those by which a file knows them or defines what mentions them."""
    reached = {*names, *_renamed(body, names)}
    while True:
        found = {
            name for node in body if _mentions(node, reached) for name in _defines(node)
        } | reached
        if found == reached:
            return reached
        reached = found


def _renamed(body: Collection[ast.stmt], names: Collection[str]) -> Iterator[str]:
    for node in body:
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            if alias.asname and alias.name.rpartition(".")[2] in names:
                yield alias.asname


def _mentions(node: ast.stmt, names: Collection[str]) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return False
    for inner in ast.walk(node):
        match inner:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                if name in names:
                    return True
            case ast.Constant(value=str(text)):
                if text in names:
                    return True
    return False


def _defines(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) if not _is_test(node):
            yield name
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def _is_test(node: ast.stmt) -> TypeGuard[ast.FunctionDef | ast.ClassDef]:
    match node:
        case ast.FunctionDef(name=name):
            return name.startswith("test")
        case ast.ClassDef(name=name):
            return name.startswith("Test")
    return False


def _module(tree: Tree, path: str) -> ast.Module:
    try:
        return parsed(tree.read([path])[path])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])
