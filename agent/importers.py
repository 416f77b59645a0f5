"""Who imports a module in a commit, by itself or through another file of the project.

A module is a path without its suffix: 'src/pkg/softmax'. An absolute import may mean one such path
under each import root, a relative one means a path beside its own file. Folders without an
`__init__.py` are no obstacle: no such file is asked for.
"""

from __future__ import annotations

import ast
import codecs
import os
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

MOST_BETWEEN = 4
"""Modules between a kernel and the tests that reach it, where none are nearer."""


@dataclass(frozen=True)
class Tree:
    """A commit, and how the user's checkout differs from it. Paths are relative to the root."""

    root: Path
    """Of the user's checkout."""
    files: Collection[str]
    read: Callable[[Iterable[str]], Mapping[str, bytes]]
    """The content of files of the commit."""
    changes: Collection[str] = ()
    """Files of the checkout that are modified, staged or untracked."""


@dataclass(frozen=True)
class _Imports:
    """What a file imports."""

    modules: frozenset[PurePosixPath]
    """All that its import statements may name."""
    names: frozenset[tuple[PurePosixPath, str, str]]
    """(module, name, name it is given here) of `from module import name`."""
    attributes: frozenset[str]
    spelled: frozenset[str]
    """Strings of a file that takes attributes by name: `getattr(package, name)`."""


@dataclass(frozen=True)
class _Way:
    """A module whose import leads to the kernel."""

    module: PurePosixPath
    names: frozenset[str] | None
    """Those of its names that do; None where all are taken to."""
    file: str
    """The file that the way leads through."""

    def is_taken(self, imports: _Imports, *, by_name: bool = False) -> bool:
        """Whether a file that imports this goes the way.

        Args:
            imports: what it imports.
            by_name: whether a name that it only spells counts.
        """
        used = imports.attributes | imports.spelled if by_name else imports.attributes
        if self.names is None:
            return self.module in imports.modules
        taken = {name for origin, name, _ in imports.names if origin == self.module}
        return bool(taken & {*self.names, "*"}) or (
            self.module in imports.modules and bool(used & self.names)
        )

    def called(self, imports: _Imports) -> frozenset[str]:
        """What a file that imports this calls those of the way's names that it takes."""
        names = self.names or frozenset()
        taken = {(name, alias) for origin, name, alias in imports.names if origin == self.module}
        given = frozenset(alias for name, alias in taken if name in names)
        if ("*", "*") in taken:
            return given | names
        return given | (names & imports.attributes if self.module in imports.modules else given)

    def may_be_taken(self, source: bytes, statements: bytes) -> bool:
        """Whether a text looks like it; False is certain."""
        return os.fsencode(self.module.name) in statements and (
            self.names is None
            or b"*" in statements
            or any(os.fsencode(name) in source for name in self.names)
        )


@dataclass(frozen=True)
class Taker:
    """A file that takes a name of another."""

    name: str
    """As the file that defines it has it."""
    file: str
    text: bytes
    called: frozenset[str]
    """The names by which this file knows it."""


class Importers:
    """Who imports what in a commit."""

    def __init__(self, tree: Tree, roots: Iterable[str]) -> None:
        """Of that commit, with these folders on `sys.path`."""
        self._tree = tree
        self._tops = [PurePosixPath(root) for root in roots]
        self._read: dict[str, _Imports] = {}

    def importing(
        self, kernel: str, among: Collection[str], *, itself: bool = False
    ) -> Iterator[str]:
        """Those of some files that import the kernel's module, or what a package hands on of it.

        Args:
            kernel: the file.
            among: the files.
            itself: whether what a package hands on does not count.
        """
        ways = [_Way(module_of(kernel), None, kernel)]
        ways += [] if itself else self._handed_on(kernel)
        yield from (path for path, _ in self._taking(ways, among))

    def strays(self, kernel: str, tests: Iterable[str]) -> Iterator[str]:
        """Tests that have a copy of the kernel's package nearer than the kernel: they mean that."""
        path = PurePosixPath(kernel)
        inside = [path.relative_to(t) for t in self._tops if path.is_relative_to(t)] or [path]
        name = min(inside, key=lambda each: len(each.parts))
        ends = f"/{name}" if len(name.parts) > 1 else "//"  # many modules have one name
        copies = [each for each in self._tree.files if f"/{each}".endswith(ends) and each != kernel]
        for test in tests if copies else ():
            own, *others = (len(os.path.commonpath([each, test])) for each in (kernel, *copies))
            if max(others) > own:
                yield test

    def through(
        self,
        kernel: str,
        among: Collection[str],
        *,
        far: bool = False,
        first: Collection[str] = (),
    ) -> dict[str, str]:
        """Those of some files that import a module which imports the kernel's, and its file.

        No file of `among` is such a module. Of a package's `__init__` only what it defines, or
        hands on of the kernel, counts.

        Args:
            kernel: the file.
            among: the files.
            far: where there are none, those that import a module which imports such a module, and
                so on; and those that take what a package hands on by its name.
            first: names of the kernel's file. Modules that import none of them, but others of it,
                count where nothing else leads to it.
        """
        left = {path for path in self._tree.files if path.endswith(".py")} - {*among, kernel}
        ways = [_Way(module_of(kernel), None, kernel)]
        if first and not far:
            between = [path for path, _ in self._taking(ways, sorted(left))]
            near = [path for path in between if self._may_take(path, ways[0].module, first)]
            nearer = [way for path in near for way in self._ways_through(path, {ways[0].module})]
            if found := dict(self._taking(nearer, among, by_name=True)):
                return found
        for _ in range(MOST_BETWEEN if far else 1):
            between = [path for path, _ in self._taking(ways, sorted(left))]
            origins = {way.module for way in ways}
            ways = [way for path in between for way in self._ways_through(path, origins)]
            ways += [above for way in ways for above in self._from_above(way)] if far else []
            if found := dict(self._taking(ways, among, by_name=far)):
                return found
            left -= {*between}
        return {}

    def takers(self, kernel: str, names: Collection[str]) -> Iterator[Taker]:
        """Each of some names of a file with the files that take it, from there or from another
        that hands it on; a file may come several times."""
        others = sorted(p for p in self._tree.files if p.endswith(".py") and p != kernel)
        sources = self._tree.read(others) if names else {}  # of a large repository once
        for name in names:
            seen: set[Taker] = set()
            ways = [_Way(module_of(kernel), frozenset({name}), kernel)]
            while ways:
                known = {os.fsencode(each) for way in ways for each in way.names or ()}
                marks = [*known, b"import *"]
                likely = [p for p, text in sources.items() if any(mark in text for mark in marks)]
                taking = [path for path, _ in self._taking(ways, likely)]
                fresh = {self._taker(name, path, sources[path], ways) for path in taking} - seen
                yield from sorted(fresh, key=lambda taker: taker.file)
                seen |= fresh
                ways = [_Way(module_of(each.file), each.called, each.file) for each in fresh]

    def _taker(self, name: str, path: str, text: bytes, ways: Collection[_Way]) -> Taker:
        imports = self._imports(path, text)
        called = (way.called(imports) for way in ways)
        return Taker(name, path, text, frozenset().union(*called))

    def _may_take(self, path: str, module: PurePosixPath, names: Collection[str]) -> bool:
        """Whether a file that imports from a module imports one of some names, or all of it."""
        imported = self._imports(path, self._tree.read([path])[path]).names
        taken = {name for origin, name, _ in imported if origin == module}
        is_whole = any(origin / name == module for origin, name, _ in imported)
        return is_whole or not taken or bool(taken & {*names, "*"})

    def _ways_through(self, path: str, origins: Collection[PurePosixPath]) -> Iterator[_Way]:
        """The ways by a file that imports one of some modules."""
        source = self._tree.read([path])[path]
        names = None
        if PurePosixPath(path).name == "__init__.py":
            imports, package = self._imports(path, source), module_of(path)
            given = {a for o, n, a in imports.names if not {o, o / n}.isdisjoint(origins)} - {"*"}
            names = (
                _defined(source)
                | given
                | _attributes_of(package, imports.modules.intersection(origins))
            )
        if names is None or names:
            yield _Way(module_of(path), names, path)
            yield from self._handed_on(path, names)

    def _from_above(self, way: _Way) -> Iterator[_Way]:
        """The same names by the packages above, as far as each imports the one below it.

        That is `pkg.ops.f` after `import pkg`.
        """
        package = way.module.parent
        init = f"{package}/__init__.py"
        if way.names is None or init not in self._tree.files:
            return
        if way.module in self._imports(init, self._tree.read([init])[init]).modules:
            above = _Way(package, way.names, way.file)
            yield above
            yield from self._from_above(above)

    def imported(self, path: str) -> list[str]:
        """The files of the commit that one of it imports from, in order.

        What a package's `__init__` hands on is imported from where that has it.
        """
        imports = self._imports(path, self._tree.read([path])[path])
        files = set(self._files(imports.modules))
        for init in [file for file in files if file.endswith("__init__.py")]:
            package = module_of(init)
            asked = {name for origin, name, _ in imports.names if origin == package}
            for origin, name, alias in self._imports(init, self._tree.read([init])[init]).names:
                if alias in asked or {"*"} & {*asked, alias}:
                    files.update(self._files([origin, origin / name]))
        return sorted(files - {path})

    def _files(self, modules: Iterable[PurePosixPath]) -> Iterator[str]:
        for module in modules:
            for file in (f"{module}.py", f"{module / '__init__.py'}"):
                if file in self._tree.files:
                    yield file

    def _taking(
        self, ways: Collection[_Way], among: Collection[str], *, by_name: bool = False
    ) -> Iterator[tuple[str, str]]:
        """Each file that goes one of the ways, and the file that its first one leads through."""
        words = {os.fsencode(way.module.name) for way in ways}
        for path, source in self._tree.read(among).items():
            if not any(word in source for word in words):
                continue  # parsing every test of a large repository would take minutes
            statements = _statements(source)
            likely = [way for way in ways if way.may_be_taken(source, statements)]
            imports = self._imports(path, source) if likely else None
            for way in likely:
                if imports and way.is_taken(imports, by_name=by_name):
                    yield path, way.file
                    break

    def _handed_on(self, file: str, names: frozenset[str] | None = None) -> Iterator[_Way]:
        """The packages around a module whose `__init__` hands on names of it, and which.

        Args:
            file: of the module.
            names: those of it that are looked for; all of them where it is None.
        """
        module = module_of(file)
        inits = {str(package / "__init__.py"): package for package in module.parents}
        sources = self._tree.read(path for path in inits if path in self._tree.files)
        for init, source in sources.items():
            given = {
                (name, alias)
                for origin, name, alias in self._imports(init, source).names
                if origin == module
            }
            exported = frozenset(
                alias for name, alias in given if name != "*" and (names is None or name in names)
            )
            if ("*", "*") in given:
                exported |= _defined(self._tree.read([file])[file]) if names is None else names
            if exported:
                yield _Way(inits[init], exported, file)

    def _imports(self, path: str, source: bytes) -> _Imports:
        if path not in self._read:
            self._read[path] = _imports(path, source, self._tops)
        return self._read[path]


_STATEMENT = re.compile(
    rb"(?:^|[;:])[ \t]*(?:from|import)\b(?:\((?:#[^\n]*\n|[^)#])*\)|\\\r?\n|[^\n\\(])*"
    rb"|import(?:_module|orskip)\b[^)]*",
    re.MULTILINE,
)


def _statements(source: bytes) -> bytes:
    """All in a text that looks like an import: a word that is not in it is not imported."""
    return b"\n".join(_STATEMENT.findall(source.removeprefix(codecs.BOM_UTF8)))


def parsed(source: str | bytes) -> ast.Module:
    """The tree of a file.

    Raises:
        SyntaxError: it is no Python.
        ValueError: neither, by a null byte.
    """
    with warnings.catch_warnings():  # an invalid escape sequence in a test is not ours to report
        warnings.simplefilter("ignore")
        return ast.parse(source)


def _attributes_of(package: PurePosixPath, modules: Iterable[PurePosixPath]) -> frozenset[str]:
    """What a package has by the import of some modules below it, in whatever way."""
    below = [module.relative_to(package) for module in modules if package in module.parents]
    return frozenset(module.parts[0] for module in below)


def module_of(path: str) -> PurePosixPath:
    """The module of a file; a package's is its folder."""
    file = PurePosixPath(path)
    return file.parent if file.name == "__init__.py" else file.with_suffix("")


def _defined(source: bytes) -> frozenset[str]:
    kinds = (ast.FunctionDef, ast.ClassDef)
    return frozenset(node.name for node in parsed(source).body if isinstance(node, kinds))


def _imports(path: str, source: bytes, tops: Collection[PurePosixPath]) -> _Imports:
    """What a file imports anywhere in it; nothing when it does not parse."""
    try:
        nodes = list(ast.walk(parsed(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # generated code nests deeply
        nodes = []
    modules: set[PurePosixPath] = set()
    names: set[tuple[PurePosixPath, str, str]] = set()
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    constants = [node.value for node in nodes if isinstance(node, ast.Constant)]
    by_name = any(map(_takes_by_name, nodes))
    spelled = {value for value in constants if by_name and isinstance(value, str)}
    for node in nodes:
        match node:
            case ast.Import():
                modules |= {top / _path(alias.name) for alias in node.names for top in tops}
            case ast.ImportFrom():
                here = PurePosixPath(path).parents[: node.level][-1:] if node.level else tops
                for origin in (top / _path(node.module or "") for top in here):
                    modules.add(origin)
                    modules |= {origin / alias.name for alias in node.names}
                    names |= {(origin, a.name, a.asname or a.name) for a in node.names}
            case ast.Call(
                func=ast.Name(id="import_module" | "importorskip")
                | ast.Attribute(attr="import_module" | "importorskip"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                modules |= {top / _path(name) for top in tops}
    return _Imports(frozenset(modules), frozenset(names), frozenset(attributes), frozenset(spelled))


def _takes_by_name(node: ast.AST) -> bool:
    """Whether it is `getattr(package, name)`: the name may be any that the file spells."""
    match node:
        case ast.Call(func=ast.Name(id="getattr"), args=[_, _, *_]):
            return True
    return False


def _path(dotted: str) -> PurePosixPath:
    return PurePosixPath(*dotted.split("."))
