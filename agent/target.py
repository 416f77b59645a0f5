"""What a run works on: a kernel, its backend, its tests, and from where Python imports them.

Everything is read from a commit, since a commit is what a run judges; git itself stays with
`agent.repository`, which hands over a `Tree`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from agent.analysis.common.kernels import KernelFunction
from agent.backends import detect
from agent.backends.base import Backend
from agent.captured_import import takes, takes_by_place
from agent.chosen_tests import (
    BENCHMARKS,
    benchmarks_of,
    called_after,
    calls_its_own,
    chosen,
    is_called,
    leading_to_kernels,
    loaded_together,
)
from agent.errors import NoTests, UsageError
from agent.frozen_tests import holds
from agent.importers import Importers, Tree, module_of, parsed
from agent.launches import ObservedLaunch
from agent.suggesting import or_captured
from agent.syntax import Source
from tile_agent_pytest.bench_command import BenchCommand

CAPTURED = "_captured.py"
"""How the name of a file of captured tests ends."""
DECORATED = re.compile(rb"@.*\b(?:jit|kernel)\b")
"""What every file has that holds a tile kernel, and few others do."""
MOST_NAMED = 2
"""Of the files that a line is about."""


@dataclass(frozen=True)
class Target:
    """A kernel file with all that a run needs to judge a change of it."""

    kernel: str
    backend: str
    kernels: tuple[KernelFunction, ...]
    tests: tuple[str, ...]
    """pytest node ids, relative to the root; correctness and perf tests alike."""
    benches: tuple[str, ...]
    """Benchmark scripts with their arguments, relative to the root."""
    import_roots: tuple[str, ...]
    """Folders, relative to the root, that belong on `sys.path`, in order."""
    scripts: tuple[str, ...] = ()
    """Files that may be benchmark scripts of it, where none was given."""
    notes: tuple[str, ...] = ()
    """By what the tests were found, where no test imports the kernel or is named after it; what is
    left out of them."""

    @property
    def wrappers(self) -> tuple[str, ...]:
        """The functions of the file that launch its kernels, in order and once each."""
        return tuple(dict.fromkeys(name for k in self.kernels for name in k.launched_from))

    def sys_path(self, worktree: Path) -> tuple[Path, ...]:
        """What comes first on `sys.path`, so that a worktree's own files are imported."""
        return tuple(worktree / root for root in self.import_roots)


def find_target(
    tree: Tree,
    kernel: str,
    tests: Collection[str] = (),
    benches: Collection[str] = (),
    *,
    needs_tests: bool = True,
    pass_env: Collection[str] = (),
    python: str = "",
) -> Target:
    """Find out what a run on `kernel` works on.

    Args:
        tree: the commit.
        kernel: the file.
        tests: node ids, where the user gave some.
        benches: benchmark scripts that are perf tests.
        needs_tests: whether there have to be some already.
        pass_env: names of the variables that are handed on: what is suggested says so, too.
        python: the interpreter that runs the tests, likewise.

    Raises:
        NoKernelError: the file holds no tile kernel; those that it imports from and do are named.
        UsageError: it does not parse, no test is committed, or a benchmark is no such script.
    """
    roots = tuple(import_roots(tree, kernel))
    importers = Importers(tree, roots)
    try:
        source, backend = parse(tree.read([kernel])[kernel].decode("utf-8"), kernel)
    except NoKernelError:
        if not (others := [path for path in importers.imported(kernel) if _holds(tree, path)]):
            raise
        told = f"{_listed(others)}, which it imports from, {'does' if len(others) == 1 else 'do'}"
        raise NoKernelError(f"{kernel} holds no tile kernel; {told}") from None
    benches = tuple(_benches(tree, benches, kernel))  # what is wrong there was given
    notes: list[str] = []
    if tests:
        files = list(_given(tree, tests, kernel))
    else:
        own = kernel if calls_its_own(tree.read([kernel])[kernel]) else ""
        script = own or (BenchCommand.parse(benches[0]).path if benches else "")
        made = or_captured(kernel, script=script, pass_env=pass_env, python=python)
        files, through = _found(tree, kernel, importers, made, needed=needs_tests)
        are_near = {*through} == {*importers.importing(kernel, through)}
        notes += _how_found(kernel, files, through, are_near=are_near)
        files, apart = loaded_together(tree, files)
        notes += _left_out(apart)
        whole = {
            *importers.importing(kernel, files, itself=True),
            *filter(_named_after(kernel), files),
            *_from_its_folder(tree, kernel, files),
        }
        found = chosen(tree, kernel, files, whole, through)
        files = list(found.tests)
        notes += found.notes
    return Target(
        kernel=kernel,
        backend=backend.name,
        kernels=backend.kernels(source),
        tests=tuple(files),
        benches=benches,
        import_roots=roots,
        scripts=() if benches else benchmarks_of(tree, kernel, importers),
        notes=tuple(notes),
    )


class NoKernelError(UsageError):
    """A file parses and holds no tile kernel."""


def parse(text: str, path: str) -> tuple[Source, Backend]:
    """A kernel's file and its language.

    Raises:
        UsageError: it does not parse.
        NoKernelError: it holds no tile kernel.
    """
    _parsed(text, path)
    source = Source(text, path)
    backend = detect(source)
    if backend is None:
        raise NoKernelError(
            f"{path} holds no tile kernel: it needs a function decorated with"
            " cuda.tile's @ct.kernel or Triton's @triton.jit"
        )
    return source, backend


def _holds(tree: Tree, path: str) -> bool:
    """Whether a file of the commit holds a tile kernel."""
    text = tree.read([path])[path]
    if not DECORATED.search(text):
        return False  # detecting takes a tenth of a second and more
    try:
        parse(text.decode("utf-8", "replace"), path)
    except UsageError:
        return False
    return True


def left_alone(source: Source, launches: Iterable[ObservedLaunch]) -> Iterator[str]:
    """A line on the kernels that the file launches and no perf test does, where there are some."""
    backend = detect(source)
    found = backend.kernels(source) if backend else ()
    timed = {launch.kernel for launch in launches}
    others = [k.name for k in found if k.launched_from and k.name not in timed]
    if others and timed & {kernel.name for kernel in found}:
        yield f"no perf test launches {', '.join(others)}: left as they are"


def _parsed(text: str, path: str) -> None:
    """Raise `UsageError` where a file is no Python."""
    try:
        parsed(text)
    except (SyntaxError, ValueError) as error:
        if not path.endswith(".py"):
            raise UsageError(f"{path} is no Python file: name the file of a kernel") from None
        line = getattr(error, "lineno", None) or 1
        reason = getattr(error, "msg", None) or error
        raise UsageError(f"{path}:{line}: {reason}: mend the syntax and commit it") from None


# --- import roots -------------------------------------------------------------------------------


def import_roots(tree: Tree, kernel: str) -> Iterator[str]:
    """The folder above the kernel's outermost package, `src`, the root, then PYTHONPATH's.

    A folder in a package may lack its `__init__.py`: what is above that package counts, too.
    """

    def above(folder: PurePosixPath) -> PurePosixPath:
        while folder.name and str(folder / "__init__.py") in tree.files:
            folder = folder.parent
        return folder

    folder = above(PurePosixPath(kernel).parent)
    around = (each for each in folder.parents if str(each / "__init__.py") in tree.files)
    roots = [str(folder), *(str(above(each)) for each in around)]
    if any(path.startswith("src/") for path in tree.files):
        roots.append("src")
    roots.append(".")
    for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        place = Path(entry).resolve()
        if entry and place.is_relative_to(tree.root):
            roots.append(place.relative_to(tree.root).as_posix())
    yield from dict.fromkeys(roots)


# --- tests --------------------------------------------------------------------------------------


def _given(tree: Tree, tests: Iterable[str], kernel: str) -> Iterator[str]:
    """The user's node ids, relative to the root."""
    for test in tests:
        file, colons, rest = test.partition("::")
        path = _committed(tree, file, f"--tests {test}")
        if path == kernel:
            why = f"--tests {test} is the kernel's own file, which candidates change"
            raise UsageError(f"{why}: move its tests to a file of their own that imports it")
        yield f"{path}{colons}{rest}"


def _committed(tree: Tree, file: str, given: str) -> str:
    """The path of a file or folder that the user named, relative to the root.

    Raises:
        UsageError: it is not in the commit, or is changed; the line begins with what was given.
    """
    place = Path(file).resolve()
    if not place.exists():
        place = (tree.root / file).resolve()
    inside = place.is_relative_to(tree.root)
    path = place.relative_to(tree.root).as_posix() if inside else file
    if not any(holds(path, known) for known in tree.files):
        there = inside and place.exists()
        mend = "commit it first" if there else "give the path of a committed file"
        raise UsageError(f"{given}: {path} is not in the repository's commit: {mend}")
    _check_unchanged(known for known in tree.changes if holds(path, known))
    return path


def _benches(tree: Tree, benches: Iterable[str], kernel: str) -> Iterator[str]:
    """The user's benchmark scripts, relative to the root."""
    for text in dict.fromkeys(benches):
        given = f"--bench {text!r}"
        try:
            command = BenchCommand.parse(text)
        except ValueError as problem:
            raise UsageError(f"{given} {problem}") from None
        path = _committed(tree, command.path, given)
        if path == kernel:
            raise UsageError(
                f"{given} is the kernel's own file, which candidates change: move the benchmark "
                "to a file of its own"
            )
        _parsed(tree.read([path])[path].decode("utf-8", "replace"), path)
        yield str(replace(command, path=path))


def _found(
    tree: Tree, kernel: str, importers: Importers, or_made: str, *, needed: bool
) -> tuple[list[str], Collection[str]]:
    """The tests that import the kernel's module, or else those that are named after it.

    Where there are none, those that import a module of the project which imports the kernel's: the
    files of these modules are the second value. Tests that were captured import the kernel in any
    case: where no other does, the others count beside them, as they did before.
    """
    tests = sorted(path for path in tree.files if _is_test(path))
    named = _named_after(kernel)
    of_others = {*_of_others(tree, kernel, filter(named, tests)), *importers.strays(kernel, tests)}
    tests = [path for path in tests if path not in of_others]
    through: dict[str, str] = {}
    found = list(importers.importing(kernel, tests))
    found += _from_its_folder(tree, kernel, [test for test in tests if test not in found])
    if _all_captured(found):
        found = sorted({*found, *called_after(kernel, filter(named, tests), importers)})
    if not found:  # pytest collects them where they are named
        loose = sorted(p for p in tree.files if p != kernel and is_called(p, _LOOSE))
        found = [p for p in importers.importing(kernel, loose) if _has_tests(tree, p)]
    if _all_captured(found):
        through = importers.through(kernel, tests, first=leading_to_kernels(tree, kernel))
        if not (found or through):
            through = importers.through(kernel, tests, far=True)
        found = sorted({*found, *through})
    _check_unchanged(path for path in tree.changes if path in found or named(path))
    if needed and not found:
        none = f"no committed test imports {kernel}, or a module that does, or is called"
        instead = f"name one with --tests FILE[::TEST], {or_made}"
        if _has_tests(tree, kernel):
            instead = f"move its own tests to another file, for candidates change it, {instead}"
        raise NoTests(f"{none} test_{module_of(kernel).name}.py: {instead}")
    return found, sorted(set(through.values()))


def _from_its_folder(tree: Tree, kernel: str, tests: Iterable[str]) -> Iterator[str]:
    """The captured tests that put the kernel's folder on `sys.path`, or load it by its path."""
    for path, text in _captured(tree, tests):
        if takes_by_place(text, PurePosixPath(path), PurePosixPath(kernel)):
            yield path


def _of_others(tree: Tree, kernel: str, tests: Iterable[str]) -> Iterator[str]:
    """The captured tests of another file that has the kernel's name."""
    for path, text in _captured(tree, tests):
        if not takes(text, PurePosixPath(path), PurePosixPath(kernel)):
            yield path


def _captured(tree: Tree, tests: Iterable[str]) -> Iterator[tuple[str, str]]:
    found = [test for test in tests if test.endswith(CAPTURED)]
    yield from ((p, text.decode("utf-8", "replace")) for p, text in tree.read(found).items())


def _all_captured(tests: Collection[str]) -> bool:
    return all(test.endswith(CAPTURED) for test in tests)


def _how_found(
    kernel: str, tests: Iterable[str], through: Collection[str], *, are_near: bool
) -> Iterator[str]:
    """A line on the modules through which the tests reach the kernel, where they do.

    Args:
        kernel: the file.
        tests: those that were found.
        through: the modules that they import.
        are_near: whether these import the kernel themselves.
    """
    if through:
        captured = any(test.endswith(CAPTURED) for test in tests)
        none = "no test but captured ones" if captured else "no test"
        one, several = ("does", "do") if are_near else ("leads to it", "lead to it")
        do = one if len(through) == 1 else several
        yield f"{none} imports {kernel}: taken are those that import {_listed(through)}, which {do}"


def _left_out(tests: Collection[str]) -> Iterator[str]:
    """A line on the tests that cannot be loaded beside the others, where there are some."""
    if tests:
        yield (
            f"left out: {_listed(tests)}, for the conftest.py above adds an option that another "
            "one adds, too: --tests names what is to be run"
        )


def _listed(files: Collection[str]) -> str:
    """Files in a line; of many the first ones, and how many more."""
    named = [*files][:MOST_NAMED]
    if more := len(files) - len(named):
        named.append(f"{more} more")
    *others, last = named
    return f"{', '.join(others)} and {last}" if others else last


_TEST = re.compile(r"^(?:async )?def test|^class Test", re.MULTILINE)
_LOOSE = ("test*.py", "*test.py", "*tests.py", *BENCHMARKS)
"""What files of tests are called, though not as pytest looks for: `test.py`."""


def _is_test(path: str) -> bool:
    return is_called(path, ("test_*.py", "*_test.py"))


def _has_tests(tree: Tree, path: str) -> bool:
    text = tree.read([path])[path].decode("utf-8", "replace")
    return bool(_TEST.search(text))


def _named_after(kernel: str) -> Callable[[str], bool]:
    stem = module_of(kernel).name

    def matches(path: str) -> bool:
        name = PurePosixPath(path).name
        exact = name in (f"test_{stem}.py", f"{stem}_test.py")
        return exact or (name.startswith(f"test_{stem}_") and name.endswith(".py"))

    return matches


def _check_unchanged(changed: Iterable[str]) -> None:
    if path := next(iter(changed), None):
        raise UsageError(
            f"{path} has uncommitted changes, and a run judges the commit: commit it first"
        )
