"""What a port imports of its project, and whether that needs Triton, which the port does not.

Functions for the host are taken along where their file needs Triton; what cannot be taken is told.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from agent.importers import Importers, Tree, parsed
from agent.porting import NotPortable, Port, port
from agent.porting.taken import with_functions


def without_triton(made: Port, text: str, kernel: Path, tree: Tree, roots: Iterable[str]) -> Port:
    """A port that needs no Triton for the sake of what it imports, as far as that can be had.

    Args:
        made: the port.
        text: its origin.
        kernel: the origin's file.
        tree: the project on the disk.
        roots: folders, relative to its root, from which modules are imported.
    """
    project = _Project(tree, [*roots], kernel.resolve().relative_to(tree.root).as_posix())
    notes = dict(made.notes)
    if package := project.asking_package():
        inside, by = package
        notes[f"{inside} needs Triton, for {by}, and with it whoever imports the port there"] = (1,)
        return replace(made, notes=notes)
    if not any(map(project.asks, project.imported(made.text))):
        return made

    def module_text(module: str) -> str | None:
        file = project.file_of(module)
        return project.text(file) if file and project.asks(file) else None

    def is_of_project(module: str) -> bool:
        return bool(project.imported(f"import {module}\n"))

    longer, names = with_functions(text, module_text, is_of_project)
    if names:
        try:
            made = port(longer, str(kernel))
        except NotPortable:
            names = []  # the lines of its message are none of the file's
    for name in names:
        notes[f"{name} is taken along: its file needs Triton"] = project.lines(text, name)
    for file in project.imported(made.text):
        if by := project.asks(file):
            imports = "it imports Triton" if by == file else f"it needs Triton, for {by}"
            told = f"{file} is imported by the port, and {imports}: copy what the port uses of it"
            notes[told] = project.lines_of_file(text, file)
    return replace(made, notes=notes)


class _Project:
    """The modules of a project, and which need Triton."""

    def __init__(self, tree: Tree, roots: list[str], kernel: str) -> None:
        self._tree, self._roots, self._kernel = tree, roots, kernel
        self._importers = Importers(tree, roots)
        self._needs: dict[str, str] = {}

    def asks(self, path: str) -> str:
        """The file that imports Triton when another one is imported; empty where none does.

        The origin and the packages around it are left to `asking_package`.
        """
        if path not in self._needs:
            self._needs[path] = ""  # for those that import each other
            further = [*self._importers.imported(path), *self._packages(path)]
            asking = (self.asks(each) for each in further if each != self._kernel)
            is_one = _imports_triton(self._tree.read([path])[path])
            self._needs[path] = path if is_one else next(filter(None, asking), "")
        return self._needs[path]

    def asking_package(self) -> tuple[str, str] | None:
        """The `__init__.py` around the origin that needs Triton though it were without it."""
        for init in self._around():
            if by := self.asks(init):
                return init, by
        return None

    def imported(self, text: str) -> list[str]:
        """The files that a text in the origin's place imports."""

        def read(paths: Iterable[str]) -> Mapping[str, bytes]:
            wanted = [*paths]
            found = dict(self._tree.read([path for path in wanted if path != self._kernel]))
            return found | ({self._kernel: text.encode()} if self._kernel in wanted else {})

        overlaid = Tree(self._tree.root, self._tree.files, read)
        return Importers(overlaid, self._roots).imported(self._kernel)

    def file_of(self, module: str) -> str:
        """The file of a module, by its name in an import; empty where it is not the project's."""
        found = self.imported(f"from {module} import _\n")
        return found[0] if len(found) == 1 and not found[0].endswith("__init__.py") else ""

    def text(self, path: str) -> str:
        """What a file holds."""
        return self._tree.read([path])[path].decode("utf-8", errors="replace")

    def lines(self, text: str, name: str) -> tuple[int, ...]:
        """Where a text imports a name."""
        return tuple(n.lineno for n in _froms(text) if name in [a.name for a in n.names])

    def lines_of_file(self, text: str, file: str) -> tuple[int, ...]:
        """Where a text imports from a file."""
        at = [n for n in ast.walk(parsed(text)) if isinstance(n, ast.Import | ast.ImportFrom)]
        return tuple(n.lineno for n in at if file in self.imported(f"{ast.unparse(n)}\n")) or (1,)

    def _around(self) -> Iterator[str]:
        for folder in PurePosixPath(self._kernel).parents:
            init = str(folder / "__init__.py")
            if init in self._tree.files:
                yield init

    def _packages(self, path: str) -> Iterator[str]:
        around = {*self._around(), path}
        for folder in PurePosixPath(path).parents:
            init = str(folder / "__init__.py")
            if init in self._tree.files and init not in around:
                yield init


def _froms(text: str) -> Iterator[ast.ImportFrom]:
    return (node for node in ast.walk(parsed(text)) if isinstance(node, ast.ImportFrom))


def _imports_triton(text: bytes) -> bool:
    """Whether a file cannot be imported without Triton; one that catches that can."""
    try:
        body = parsed(text).body
    except (SyntaxError, ValueError):
        return False
    for node in body:
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        if any(name.partition(".")[0] == "triton" for name in names):
            return True
    return False
