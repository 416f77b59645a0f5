"""Which of the tests that reach a kernel through its package are about it. Read, not run.

A package that hands on a hundred operators is imported by a file of tests for each dozen of them:
what tests a kernel names what the kernel's file defines, or what a module, a fixture or a helper
makes of that. A file with few tests is taken as it is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TypeGuard

from agent.importers import Importers, Tree, module_of, parsed

BENCHMARKS = ("bench*.py", "*bench.py", "*benchmark.py")
"""What files of benchmarks are called."""
_KERNEL = re.compile(r"\b(?:jit|kernel)\b")
"""What of a decorator makes a function a kernel."""
FEW = 8
"""Tests of a file that are all run: leaving some out would save little."""


@dataclass(frozen=True)
class ChosenTests:
    """What is run, and what is told of the rest."""

    tests: tuple[str, ...]
    notes: tuple[str, ...] = ()


def chosen(
    tree: Tree, kernel: str, files: Sequence[str], whole: Collection[str], through: Iterable[str]
) -> ChosenTests:
    """Of files of tests those that are about a kernel, in order; all files where none seems to be.

    Args:
        tree: the commit.
        kernel: the file.
        files: of tests.
        whole: those that are taken in any case, as they are.
        through: the modules by which the others reach the kernel.
    """
    wanted = {name for name in _defined(_body(tree, kernel)) if not name.startswith("_")}
    inits = (str(folder / "__init__.py") for folder in PurePosixPath(kernel).parents)
    for module in dict.fromkeys((*inits, *through)):
        body = _body(tree, module)
        # What a package defines beside what it hands on may be about all of it: a switch.
        is_hub = module.endswith("__init__.py")
        wanted = wanted | {*_renamed(body, wanted)} if is_hub else _reaching(body, wanted)
    taken: list[str] = []
    notes: list[str] = []
    silent: list[str] = []
    for file in files:
        body = _body(tree, file)
        names = _reaching(body, _by_helpers(tree, file, wanted))
        tests = [node for node in body if _is_test(node)]
        about = [node.name for node in tests if _mentions(node, names)]
        is_small = about and len(tests) <= max(FEW, len(about))
        is_unseen = not about and _imports(body, names)  # for what it imports it
        if file in whole or is_small or is_unseen:
            taken.append(file)
        elif about:
            taken += [f"{file}::{name}" for name in about]
            notes.append(
                f"of {file} {len(about)} of {len(tests)} tests are taken, which name what {kernel} "
                f"defines: --tests {file} takes all"
            )
        else:
            silent.append(file)
    if not taken:
        return ChosenTests(tuple(files))
    notes += [f"left out: {file}, which names nothing that {kernel} defines" for file in silent]
    return ChosenTests(tuple(taken), tuple(notes))


def called_after(kernel: str, tests: Iterable[str], importers: Importers) -> Iterator[str]:
    """Those of tests with the kernel's name that seem to be about it: not those that import another
    module of that name, and lead to this one by none. Many a project has several `kernels.py`."""
    name = module_of(kernel).name
    for test in tests:
        imported = (module_of(file) for file in importers.imported(test))
        has_other = any(name in module.parts and module != module_of(kernel) for module in imported)
        if not has_other or importers.through(kernel, [test], far=True):
            yield test


def leading_to_kernels(tree: Tree, kernel: str) -> set[str]:
    """The kernels of a file, and what of it mentions them: what calls of others may launch."""
    body = _body(tree, kernel)
    decorated = {
        node.name
        for node in body
        if isinstance(node, ast.FunctionDef)
        and any(_KERNEL.search(ast.unparse(each)) for each in node.decorator_list)
    }
    return _reaching(body, decorated) if decorated else set()


def benchmarks_of(tree: Tree, kernel: str, importers: Importers) -> tuple[str, ...]:
    """The files that are called benchmarks and reach a kernel; first those that have its name, and
    little else in theirs."""
    scripts = sorted(p for p in tree.files if p != kernel and is_called(p, BENCHMARKS))
    found = list(importers.importing(kernel, scripts)) or [*importers.through(kernel, scripts)]
    name, names = module_of(kernel).name, {path: PurePosixPath(path).name for path in found}
    return tuple(sorted(found, key=lambda path: (name not in names[path], len(names[path]))))


def calls_its_own(text: bytes) -> bool:
    """Whether a file calls functions that it defines when Python runs it: its own benchmark, or
    tests."""
    try:
        body = parsed(text).body
    except (SyntaxError, ValueError):
        return False
    if any(isinstance(each, ast.ImportFrom) and each.level for each in body):
        return False  # of a package: no script
    own = {each.name for each in body if isinstance(each, ast.FunctionDef | ast.ClassDef)}
    return any(
        isinstance(call, ast.Call)
        and isinstance(function := _outermost(call.func), ast.Name)
        and function.id in own
        for statement in body
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef)
        for call in ast.walk(statement)
    )


def _outermost(expression: ast.expr) -> ast.expr:
    """`bench` of `bench.run`."""
    while isinstance(expression, ast.Attribute):
        expression = expression.value
    return expression


def is_called(path: str, shapes: Collection[str]) -> bool:
    """Whether the name of a file is like one of these."""
    return any(fnmatchcase(PurePosixPath(path).name, shape) for shape in shapes)


def loaded_together(tree: Tree, tests: Sequence[str]) -> tuple[list[str], list[str]]:
    """The files of tests that pytest can load in one go, and those that it cannot beside them.

    A `tests/conftest.py` and a `benchmark/conftest.py` may add an option of the same name. What
    lies in a folder that is called after tests stays, else what has more files.
    """
    by_conftest: dict[str, list[str]] = {}
    for test in tests:
        by_conftest.setdefault(_adding_conftest(tree, test), []).append(test)
    kept: list[frozenset[str]] = []
    left_out: list[str] = []
    for conftest, files in sorted(by_conftest.items(), key=_preference):
        options = _options(tree, conftest) if conftest else frozenset()
        if any(options & others for others in kept):
            left_out += files
        else:
            kept.append(options)
    return [test for test in tests if test not in left_out], left_out


def _preference(item: tuple[str, list[str]]) -> tuple[bool, int]:
    conftest, files = item
    return "test" not in str(PurePosixPath(conftest).parent), -len(files)


def _adding_conftest(tree: Tree, test: str) -> str:
    """The nearest conftest above a test that adds options; empty where none does."""
    return next((path for path in _conftests(tree, test) if _options(tree, path)), "")


def _conftests(tree: Tree, test: str) -> Iterator[str]:
    for folder in PurePosixPath(test).parents:
        path = str(folder / "conftest.py")
        if path in tree.files:
            yield path


def _options(tree: Tree, conftest: str) -> frozenset[str]:
    """The options that a conftest adds come what may: not those whose refusal it expects."""
    nodes = list(ast.walk(_module(tree, conftest)))
    expected = {inner for node in nodes if isinstance(node, ast.Try) for inner in ast.walk(node)}
    calls = (
        node
        for node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "addoption"
        and node not in expected
    )
    return frozenset(
        argument.value
        for call in calls
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    )


# --- names --------------------------------------------------------------------------------------


def _by_helpers(tree: Tree, test: str, names: set[str]) -> set[str]:
    """The names with those of fixtures above a test, and of files beside it, that reach them."""
    for conftest in _conftests(tree, test):
        names = _reaching(_body(tree, conftest), names)
    for helper in _beside(tree, test):
        names = _reaching(_body(tree, helper), names)
    return names


def _beside(tree: Tree, test: str) -> Iterator[str]:
    """The files that a test may import from: in its folder, or by their path from the root."""
    folder = PurePosixPath(test).parent
    for node in ast.walk(_module(tree, test)):
        if isinstance(node, ast.ImportFrom):
            module = (node.module or "").split(".")
            names = [alias.name for alias in node.names]
            up = [folder, *folder.parents]
            tops = up[node.level - 1 : node.level] if node.level else [folder, PurePosixPath()]
            for top in tops:
                place = top.joinpath(*filter(None, module))
                candidates = (place, *(place / name for name in names))
                yield from (p for c in candidates if (p := f"{c}.py") in tree.files and p != test)


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


def _imports(body: Collection[ast.stmt], names: Collection[str]) -> bool:
    return any(
        alias.name in names
        for node in body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    )


def _mentions(node: ast.stmt, names: Collection[str]) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return False
    for inner in ast.walk(node):
        match inner:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                if name in names:
                    return True
            case ast.Constant(value=str(text)):
                if text in names or text.rpartition(".")[2] in names:
                    return True
    return False


def _defines(node: ast.stmt) -> Iterator[str]:
    """What a statement binds, a test aside; of a fixture also what it is called."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) if not _is_test(node):
            yield name
            for decorator in node.decorator_list:
                for given in decorator.keywords if isinstance(decorator, ast.Call) else ():
                    if given.arg == "name" and isinstance(given.value, ast.Constant):
                        yield str(given.value.value)
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
            for inner in ast.walk(node):
                if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                    yield inner.id


def _is_test(node: ast.stmt) -> TypeGuard[ast.FunctionDef | ast.ClassDef]:
    match node:
        case ast.FunctionDef(name=name):
            return name.startswith("test")
        case ast.ClassDef(name=name, bases=bases):  # pytest takes unittest's by what they are
            return name.startswith("Test") or any(
                ast.unparse(base).endswith("TestCase") for base in bases
            )
    return False


def _defined(body: Collection[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name


def _body(tree: Tree, path: str) -> list[ast.stmt]:
    """The statements of a file, with those under its conditions; none where there is no file."""
    found: list[ast.stmt] = []
    left: list[ast.stmt] = list(_module(tree, path).body) if path in tree.files else []
    while left:
        node = left.pop(0)
        if isinstance(node, ast.If | ast.Try | ast.With | ast.For):
            blocks = [node.body, *(getattr(node, name, []) for name in ("orelse", "finalbody"))]
            blocks += [handler.body for handler in getattr(node, "handlers", ())]
            left = [inner for block in blocks for inner in block] + left
        else:
            found.append(node)
    return found


def _module(tree: Tree, path: str) -> ast.Module:
    return _parsed(tree.read([path])[path])


@lru_cache(maxsize=256)
def _parsed(source: bytes) -> ast.Module:
    try:
        return parsed(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])
