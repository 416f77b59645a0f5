"""Tells of each module of Python source once it has been loaded, by whatever means.

All go through the loader of source files: imports, `runpy`, pytest's own way of importing tests.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from typing import Any


def when_loaded(then: Callable[[types.ModuleType, str], None]) -> None:
    """Have a function told, from here on, of each module that was loaded, and its path."""
    original = SourceFileLoader.exec_module

    def exec_module(loader: SourceFileLoader, module: types.ModuleType) -> None:
        original(loader, module)
        then(module, loader.path)

    replaced: Any = SourceFileLoader
    replaced.exec_module = exec_module
