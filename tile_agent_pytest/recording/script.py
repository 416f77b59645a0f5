"""Runs the file that Python was started with, a statement at a time, and tells of each.

No loader loads that file, so that nothing can be put in place once it is loaded; and what it
defines it calls before it ends. Python raises an audit event when it is about to run it.
"""

from __future__ import annotations
import __future__

import ast
import importlib.util
import os
import sys
import types
from importlib.machinery import SourceFileLoader
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol


class Watcher(Protocol):
    """Told of the statements at the top of a script. Must not raise."""

    def begins(self, module: types.ModuleType, statement: ast.stmt) -> None:
        """One is about to be executed, of a module that those before it have made."""

    def ended(self, statement: ast.stmt, took_s: float) -> None:
        """It was executed."""


_FUTURE = [getattr(__future__, name).compiler_flag for name in __future__.all_feature_names]


def when_script(path: str, watcher: Watcher) -> None:
    """Have each statement of a file told of, where that is what Python runs.

    Args:
        path: of the file; the real one.
        watcher: is told.
    """
    if not any(os.path.realpath(argument) == path for argument in sys.orig_argv[1:]):
        return  # a hook is asked of every file that is opened

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "cpython.run_file" and os.path.realpath(arguments[0]) == path:
            _run(os.fsdecode(arguments[0]), watcher)

    hook.__cantrace__ = True  # type: ignore[attr-defined]  # who profiles the script sees it
    sys.addaudithook(hook)


def _run(name: str, watcher: Watcher) -> None:
    """In Python's place, which ends with that; a file that cannot be compiled is left to it."""
    try:
        tree = ast.parse(importlib.util.decode_source(Path(name).read_bytes()), name)
        compile(tree, name, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):
        return
    module = sys.modules["__main__"]
    vars(module).update(
        __file__=name,
        __cached__=None,
        __doc__=ast.get_docstring(tree, clean=False),
        __loader__=SourceFileLoader("__main__", name),
    )
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
