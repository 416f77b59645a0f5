"""The line of pytest's output that says why tests cannot be collected, and what to do then."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby, takewhile
from pathlib import Path, PurePosixPath
from typing import Protocol

from agent.harness.processes.variables import held_back
from agent.harness.processes.wanted_gpu import wants_gpu, with_question
from agent.suggesting import or_captured, or_captured_in_run, passing

LOG_BYTES = 2**20
"""As much of a log as a person would read."""
MOST_FILES = 20_000
"""Of a project that is looked through for what its code reads: a second."""
MOST_NAMED = 3
"""Variables, in a line."""
_PLACE = re.compile(
    r"^(?:(?!E |INTERNALERROR>)(\S.*?\.py):(\d+): "
    r'|(?:E|INTERNALERROR>)? +File "(.+?)", line (\d+))',
    re.MULTILINE,
)
_REFUSAL = re.compile(r"(?:^ERROR: |: error: )(?!usage:)(.+)", re.MULTILINE)
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'$")
_LACKING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
AT_IMPORT = (
    "it asks for a GPU when it is imported, and there is none: ask when a kernel is launched, or "
    "run where there is one"
)
_SYNTAX = re.compile(r": (?:SyntaxError|IndentationError|TabError): ")
_UNSET = re.compile(r"Error: .*?\b([A-Z][A-Z0-9_]+) environment variable\b.* not set")
"""What PyTorch says of CUDA_HOME, and other packages of theirs."""
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_IN_A_FILE = re.compile(r"[^\s:]+\.py\b")
_INTERNAL = "INTERNALERROR> "
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):\n(?: .*\n)+(\S.*)", re.MULTILINE)
"""Python's own: of what ends a worker before pytest has begun."""
_GAP = re.compile(
    r"Mismatched elements: |(?:Greatest|Max) absolute difference|Absolute difference: "
)
"""How the lines begin with which torch and NumPy say by how much results differ."""
_ONLY_PLACE = re.compile(r"(^|: )at \d+:\d+:$")
"""How a compiler's message begins that gives its reason below the source it is about."""


class Modules(Protocol):
    """What a checkout has, as far as it says why an import fails."""

    @property
    def kernel(self) -> str:
        """The kernel's file."""

    def has_module(self, name: str) -> bool:
        """Whether it has a module of that name where Python looks for it."""

    def beside(self, file: str, name: str) -> str:
        """The path of a module of that name in the folder of a file; empty where there is none."""


def fault(text: str, root: Path, nodeid: str = "") -> str:
    """The exception behind an account, or what pytest refuses, and where; empty where none is told.

    Args:
        text: the account, or the log of a session that ended before it had collected.
        root: of the checkout. The place is the last one in it: a test's or the kernel's own line,
            not the importer's.
        nodeid: what could not be collected, which then stands for the place, and whose account is
            its first line where it is no exception.
    """
    told = _COLOR.sub("", text).replace(f"{root}/", "")
    lines = told.splitlines()
    refusals = _REFUSAL.findall(told)
    said = (
        with_question(_exception(lines), lines)
        or (refusals or _TRACEBACK.findall(told) or [""])[-1]
    )
    if nodeid and not said:
        said = next((line.strip() for line in lines if line.strip()), "no reason given")
    places = [f"{a or c}:{b or d}" for a, b, c, d in _PLACE.findall(told)]
    place = next((p for p in reversed(places) if not p.startswith(("/", "<"))), nodeid)
    return f"{place}: {said}" if place and said and not said.startswith(place) else said


def headline(text: str) -> str:
    """The line of an account that says why: the first `E` line, else the last line at all.

    A compiler's first line may be no more than a place, with source and the reason below it; of
    results that are not close, by how much is told below it, too.
    """
    lines = [line.strip() for line in _COLOR.sub("", text).splitlines() if line.strip()]
    begin = next((n for n, line in enumerate(lines) if line.startswith("E ")), None)
    if begin is None:
        return lines[-1] if lines else ""
    told = takewhile(lambda line: line == "E" or line.startswith("E "), lines[begin:])
    first, *more = (line[1:].strip() for line in told)
    first = with_question(first, lines)
    if more and _ONLY_PLACE.search(first):
        return f"{first} {more[-1]}"
    return " ".join([first, "; ".join(line for line in more if _GAP.match(line))]).strip()


def missing_module(text: str) -> str:
    """The module that an account ends with the want of; empty where it ends otherwise."""
    found = _NO_MODULE.match(_exception(text.splitlines()))
    return found[1] if found else ""


def importable(
    files: tuple[str, ...], errors: Sequence[tuple[str, str]], modules: Modules
) -> tuple[tuple[str, ...], list[str]]:
    """The files without those that need what is not to be found, and what to say of these.

    All of them, and nothing to say, where something else is wrong too, or none would be left.

    Args:
        files: files or node ids.
        errors: what could not be collected, each with its account.
        modules: what the checkout has.
    """
    lacking = {
        nodeid: module
        for nodeid, text in errors
        if (module := missing_module(text)) and not modules.has_module(module)
    }
    kept = tuple(file for file in files if file.partition("::")[0] not in lacking)
    if len(lacking) < len(errors) or not kept or len(kept) == len(files):
        return files, []
    return kept, [
        f"{nodeid} is left out: it needs {module}, "
        + (_off_the_path(modules.beside(nodeid, module)) or "which is not installed")
        for nodeid, module in lacking.items()
    ]


def _off_the_path(path: str) -> str:
    """Why a module beside a test is not found, and what finds it; empty where there is none.

    pytest puts the folder of a test on `sys.path`, and of one in a package that of the package.
    """
    if not path:
        return ""
    folder = shlex.quote(path.rpartition("/")[0] or ".")
    why = f"and {path} is not on sys.path, where pytest alone does not find it either"
    return f"{why}: PYTHONPATH={folder} puts it there"


def read_in_vain(account: str, root: Path, passed: Collection[str]) -> tuple[str, ...]:
    """Variables of the shell that code reads which cannot be imported, and that it does not get.

    Args:
        account: what is told of an exception. The files of its traceback are looked at, and where
            they name none the others of the same folders below the root: a module that decides by a
            variable has returned by then.
        root: of the checkout.
        passed: names that are handed on.
    """
    if not (names := held_back(os.environ, passed)):
        return ()
    named = re.compile(rf"""['"]({"|".join(map(re.escape, names))})['"]""")
    told = _COLOR.sub("", account).replace(f"{root}/", "")
    chain = [root / (a or c) for a, _, c, _ in _PLACE.findall(told) if not (a or c).startswith("/")]
    beside = {_first_folder(path, root) for path in chain}
    others = (path for path in _sources(root) if _first_folder(path, root) in beside)
    for files in (chain, others if chain else _sources(root)):
        found: dict[str, None] = {}
        for path in files:
            with contextlib.suppress(OSError):
                found |= dict.fromkeys(named.findall(path.read_text("utf-8", "replace")))
        if found:
            return tuple(found)[:MOST_NAMED]
    return ()


def _first_folder(path: Path, root: Path) -> tuple[str, ...]:
    """That below the root in which a file lies; empty for one of the root's own."""
    return path.relative_to(root).parts[:-1][:1]


def _sources(root: Path) -> Iterator[Path]:
    """The Python files of a project, without environments; not all of one that is huge."""
    seen = 0
    for folder, folders, files in os.walk(root):
        folders[:] = [
            name
            for name in folders
            if not (name.startswith(".") or (Path(folder) / name / "pyvenv.cfg").exists())
        ]
        seen += len(files)
        if seen > MOST_FILES:
            return
        yield from (Path(folder) / name for name in files if name.endswith(".py"))


def not_handed_on(names: Sequence[str]) -> str:
    """That variables of the shell did not reach the code that reads them, and how they do."""
    are = "are variables" if len(names) > 1 else "is a variable"
    return (
        f"{', '.join(names)} {are} of this shell that the repository reads, not handed on without"
        f"{passing(names)}"
    )


def with_remedy(
    said: str,
    modules: Modules | None,
    held: Sequence[str] = (),
    passed: Sequence[str] = (),
    python: str = "",
    *,
    captures: bool = False,
) -> str:
    """What was said of a fault, and how to mend it, where that is to be done in a file.

    Args:
        said: what `fault` found, and perhaps where the log is.
        modules: what the checkout has, which is not to be installed; None where no module lacks.
        held: what `read_in_vain` found.
        passed: names of the variables that are handed on.
        python: the interpreter that runs the tests.
        captures: whether the tests were captured for this run, which then cannot do without.
    """
    place = _IN_A_FILE.match(said)
    others = not captures and modules is not None and _may_do_without(place, modules.kernel)
    if modules is not None and (lacking := _LACKING.search(said)):
        captured = or_captured(modules.kernel, pass_env=passed, python=python)
        ways = ["choose other tests with --tests", captured] if others else []
        return said + _found(lacking[1], place[0] if place else "", modules, ways)
    also = ""
    if others and modules is not None:
        run = or_captured_in_run(modules.kernel, passed, python)
        also = f"; or choose other tests with --tests, {run}"
    if unset := _UNSET.search(said):  # PyTorch's speaks of CUDA, and means its compiler
        return f"{said}: set it, and hand it on with --pass-env {unset[1]}{also}"
    if wants_gpu(said):
        return f"{said}: {AT_IMPORT}{also}"
    if held and not _SYNTAX.search(said):
        sure = any(f"KeyError: {name!r}" in said for name in held)
        unsure = place and not sure
        mend = "; if that is not why, mend and commit it" if unsure else ""
        return f"{said}: {not_handed_on(held)}{mend}"
    return f"{said}: mend and commit it{also}" if place else said


def _may_do_without(place: re.Match[str] | None, kernel: str) -> bool:
    """Whether other tests may not need a file that cannot be imported."""
    if place is None:
        return True
    path = PurePosixPath(place[0])
    is_above = path.name == "conftest.py" and PurePosixPath(kernel).is_relative_to(path.parent)
    return path != PurePosixPath(kernel) and not is_above


def _found(name: str, file: str, modules: Modules, ways: Sequence[str]) -> str:
    """What lets a module be found that a file imports; `ways` are those to do without."""
    if modules.has_module(name):
        return f": {', '.join(['mend and commit it', *ways])}"
    if off := _off_the_path(modules.beside(file, name) if file else ""):
        return f", {off}" + (f"; or {', '.join(ways)}" if ways else "")
    install = f"install what provides {name} for the tests' interpreter"
    return f": {install}, " + ", ".join(
        ["name another with --python", *ways] if ways else ["or name another with --python"]
    )


def fault_of_log(log: Path, root: Path) -> str:
    """What `fault` finds in a session's log, if there is one."""
    return fault(end_of(log), root)


def end_of(log: Path) -> str:
    """The end of a session's log, if there is one; what a test prints may be a gigabyte."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LOG_BYTES))
        return file.read().decode("utf-8", "replace")


def _exception(lines: Sequence[str]) -> str:
    """Its type and the first line of its message, of the last of several."""
    blocks = [list(found) for is_one, found in groupby(lines, _is_of_exception) if is_one]
    if blocks:
        return min((line[1:] for line in blocks[-1]), key=_indent).strip()
    internal = [line.removeprefix(_INTERNAL) for line in lines if line.startswith(_INTERNAL)]
    return internal[-1].strip() if internal else ""


def _is_of_exception(line: str) -> bool:
    return line.startswith("E ")


def _indent(line: str) -> int:
    """Of a syntax error the code is shown before the error itself, and further to the right."""
    return len(line) - len(line.lstrip())
