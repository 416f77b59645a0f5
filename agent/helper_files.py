"""Functions of the device that kernels of other files call: their file holds no kernel to run on.

What nobody launches cannot be timed by itself, and what tests launch is none of the file's: such a
file is planned and made faster by the files that launch what calls it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agent.analysis.common.kernels import KernelFunction
from agent.importers import Importers, parsed
from agent.launched_elsewhere import launched_elsewhere, launches, named
from agent.preflight import tree_of
from agent.repository import Repository
from agent.target import import_roots

MOST_NAMED = 3
"""Functions, kernels or files in a line."""


@dataclass(frozen=True)
class Caller:
    """A kernel of another file that calls one of the file's functions."""

    kernel: str
    file: str
    launched_by: tuple[str, ...]
    """Files that launch it; empty where none was seen to."""


def called_elsewhere(
    repository: Repository, sha: str, kernel: str, functions: Sequence[KernelFunction]
) -> Mapping[str, tuple[Caller, ...]]:
    """Functions of a file that kernels of other files of a commit call, with those kernels.

    Args:
        repository: the user's.
        sha: the commit.
        kernel: the file.
        functions: of it, that are in question.
    """
    tree = tree_of(repository, sha)
    names = [function.name for function in functions]
    found: dict[str, list[Caller]] = {}
    launchers: dict[str, Mapping[str, str]] = {}
    for taker in Importers(tree, import_roots(tree, kernel)).takers(kernel, names):
        path = taker.file
        for caller in (each for name in taker.called for each in _callers(taker.text, name)):
            if path not in launchers:
                launchers[path] = launched_elsewhere(repository, sha, path)
            own = (path,) if launches(taker.text, caller) else ()
            other = (launchers[path][caller],) if caller in launchers[path] else ()
            found.setdefault(taker.name, []).append(Caller(caller, path, (*own, *other)))
    return {name: tuple(callers) for name, callers in found.items()}


def only_helpers(
    repository: Repository, sha: str, kernel: str, functions: Sequence[KernelFunction]
) -> str:
    """That a file holds helpers alone, and where to go instead; empty where it does not.

    It does where kernels of other files call at least one of them, and nothing launches any.
    """
    if any(function.launched_from for function in functions):
        return ""
    called = called_elsewhere(repository, sha, kernel, functions)
    if not called or launched_elsewhere(repository, sha, kernel):
        return ""
    if not all(each.called_by or each.name in called for each in functions):
        return ""  # one of them may be a kernel that is launched in a way that is not seen
    callers = [caller for each in called.values() for caller in each]
    kernels = listed([f"{c.kernel} of {c.file}" for c in callers])
    launching = listed([file for c in callers for file in c.launched_by])
    launched = f", launched by {launching}" if launching else ""
    return (
        f"{kernel} holds helpers alone, {listed([f.name for f in functions])}, called by {kernels}"
        f"{launched}: name {callers[0].file} instead"
    )


def listed(names: Sequence[str]) -> str:
    """The first few of some names, each once, and how many more."""
    known = list(dict.fromkeys(names))
    more = [f"{len(known) - MOST_NAMED} more"] if len(known) > MOST_NAMED else []
    return ", ".join([*known[:MOST_NAMED], *more])


def _callers(source: bytes, name: str) -> Iterator[str]:
    """The functions of a text with a decorator that call one of a name: kernels, or helpers."""
    try:
        body = parsed(source).body
    except (SyntaxError, ValueError):
        return
    for function in body:
        if isinstance(function, ast.FunctionDef) and function.decorator_list:
            calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
            if any(named(call.func) == name for call in calls):
                yield function.name
