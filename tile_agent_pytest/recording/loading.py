"""Tells of each module of Python source once it has been loaded, by whatever means.

All go through the loader of source files: imports, `runpy`, pytest's own way of importing tests.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from typing import Any

_OF_IMPORTS = "<frozen importlib._bootstrap_external>"
"""The file of the loader's own code."""


def when_loaded(then: Callable[[types.ModuleType, str], None]) -> None:
    """Have a function told, from here on, of each module that was loaded, and its path."""
    original = SourceFileLoader.exec_module

    def exec_module(loader: SourceFileLoader, module: types.ModuleType) -> None:
        original(loader, module)
        then(module, loader.path)

    # Python leaves its own frames of an import out of tracebacks and warnings, as one chunk: with
    # ours among them it would show all. So ours is said to be one of them.
    exec_module.__code__ = exec_module.__code__.replace(co_filename=_OF_IMPORTS)
    replaced: Any = SourceFileLoader
    replaced.exec_module = exec_module
