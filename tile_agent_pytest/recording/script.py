"""Runs the file that Python was started with, a statement at a time, and tells of each.

No loader loads that file, so that nothing can be put in place once it is loaded; and what it
defines it calls before it ends. Python raises an audit event when it is about to run it; a module
that `-m` names it leaves to `runpy`.
"""

from __future__ import annotations
import __future__

import ast
import functools
import importlib
import importlib.util
import os
import re
import sys
import types
from importlib.machinery import SourceFileLoader
from pathlib import Path
from time import perf_counter
from typing import Any, NoReturn, Protocol


class Watcher(Protocol):
    """Told of the statements at the top of a script. Must not raise."""

    def begins(self, module: types.ModuleType, statement: ast.stmt) -> None:
        """One is about to be executed, of a module that those before it have made."""

    def ended(self, statement: ast.stmt, took_s: float) -> None:
        """It was executed."""


_MODULE = re.compile(r"-[a-zA-Z]*m.*")
"""Of Python's arguments the one after which, or within which, a module is named."""
_FUTURE = [getattr(__future__, name).compiler_flag for name in __future__.all_feature_names]


def when_script(path: str, watcher: Watcher) -> None:
    """Have each statement of a file told of, where that is what Python runs.

    Args:
        path: of the file; the real one.
        watcher: is told.
    """
    if any(_MODULE.fullmatch(argument) for argument in sys.orig_argv[1:]):
        _when_module(path, watcher)
    if not any(os.path.realpath(argument) == path for argument in sys.orig_argv[1:]):
        return  # a hook is asked of every file that is opened

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "cpython.run_file" and os.path.realpath(arguments[0]) == path:
            _run(os.fsdecode(arguments[0]), watcher)

    hook.__cantrace__ = True  # type: ignore[attr-defined]  # who profiles the script sees it
    sys.addaudithook(hook)


def _when_module(path: str, watcher: Watcher) -> None:
    """Have `runpy` do so, where the file is what it runs as the main module."""
    runpy: Any = importlib.import_module("runpy")
    run_code = getattr(runpy, "_run_code", None)  # not public: another Python may have none
    if run_code is None:
        return

    @functools.wraps(run_code)
    def watched(code: Any, run_globals: Any, *given: Any, **named: Any) -> Any:
        of = getattr(code, "co_filename", "")
        is_main = run_globals is vars(sys.modules["__main__"])
        if not (is_main and os.path.realpath(of) == path and (tree := _tree_of(of))):
            return run_code(code, run_globals, *given, **named)
        empty = compile("", of, "exec", dont_inherit=True)
        run_code(empty, run_globals, *given, **named)  # what a module has before it is executed
        vars(sys.modules["__main__"])["__doc__"] = ast.get_docstring(tree, clean=False)
        return _to_its_end(tree, of, watcher)

    runpy._run_code = watched


def _run(name: str, watcher: Watcher) -> None:
    """In Python's place, which ends with that; a file that cannot be compiled is left to it."""
    tree = _tree_of(name)
    if tree is None:
        return
    vars(sys.modules["__main__"]).update(
        __file__=name,
        __cached__=None,
        __doc__=ast.get_docstring(tree, clean=False),
        __loader__=SourceFileLoader("__main__", name),
    )
    _to_its_end(tree, name, watcher)


def _tree_of(name: str) -> ast.Module | None:
    """The statements of a file; None where it cannot be compiled."""
    try:
        tree = ast.parse(importlib.util.decode_source(Path(name).read_bytes()), name)
        compile(tree, name, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):
        return None
    return tree


def _to_its_end(tree: ast.Module, name: str, watcher: Watcher) -> NoReturn:
    """Execute the main module's statements, and end as Python does then."""
    module = sys.modules["__main__"]
    try:
        _execute(tree, name, module, watcher)
    except SystemExit:
        raise
    except BaseException as problem:
        begin = problem.__traceback__
        while begin is not None and begin.tb_frame.f_code.co_filename == __file__:
            begin = begin.tb_next  # the user's own frames alone, as without us
        sys.excepthook(type(problem), problem.with_traceback(begin), begin)
        raise SystemExit(130 if isinstance(problem, KeyboardInterrupt) else 1) from None
    raise SystemExit(0)


def _execute(tree: ast.Module, name: str, module: types.ModuleType, watcher: Watcher) -> None:
    flags = 0
    for statement in tree.body:
        match statement:
            case ast.Expr(value=ast.Constant()):
                continue  # alone it would be taken for the docstring
        code = compile(ast.Module([statement], []), name, "exec", flags=flags, dont_inherit=True)
        flags |= sum(flag for flag in _FUTURE if code.co_flags & flag)
        watcher.begins(module, statement)
        begin = perf_counter()
        exec(code, vars(module))
        watcher.ended(statement, perf_counter() - begin)
