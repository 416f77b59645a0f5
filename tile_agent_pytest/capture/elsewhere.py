"""Modules that may launch the kernels of another file: they hold one of these, or that module.

Tests and scripts do so, too, but they are no code that somebody wants tests of.
"""

from __future__ import annotations

import re
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tile_agent_pytest.device_functions import python_function

_TESTS = re.compile(r"(^|/)(test_[^/]*|[^/]*_test|conftest|setup)\.py$|/site-packages/")
_MARKS = (".git", "pyproject.toml", "setup.py")


@dataclass(frozen=True)
class HeldKernels:
    """What a module holds of the kernel's file."""

    file: str
    """What that is called as a module."""
    by: str
    """The path of the module's own file."""
    names: tuple[tuple[str, str], ...]
    """(name in the module, name in the file); the second is empty for the file itself."""


def held_kernels(
    module: types.ModuleType, path: str, files: Sequence[types.ModuleType]
) -> HeldKernels | None:
    """What a module holds of the kernels that it may launch; None where that is nothing.

    Args:
        module: has been loaded.
        path: of its source.
        files: the modules that the kernel's file was loaded as; not empty.
    """
    if module.__name__ == "__main__" or _TESTS.search(path):
        return None
    kernel = Path(files[0].__file__ or "").resolve()
    if not Path(path).resolve().is_relative_to(_project_of(kernel)):
        return None
    for file in files:
        own = {id(value): name for name, value in vars(file).items() if _is_kernel(value, kernel)}
        own[id(file)] = ""
        held = vars(module).items()
        if names := tuple((name, own[id(value)]) for name, value in held if id(value) in own):
            return HeldKernels(file.__name__, str(Path(path).resolve()), names)
    return None


def _is_kernel(value: object, path: Path) -> bool:
    """Whether a value is a kernel of a file; what tunes one holds it as `fn`, like the kernel its
    function."""
    function: object = python_function(value)
    if function is None and _is_of_triton(value):
        function = value
        while _is_of_triton(function):
            function = getattr(function, "fn", None)
    code = getattr(function, "__code__", None) if function is not None else None
    return code is not None and Path(code.co_filename).resolve() == path


def _is_of_triton(value: object) -> bool:
    return any(str(base.__module__).startswith("triton.") for base in type(value).__mro__)


def _project_of(file: Path) -> Path:
    """The folder of the project that a file belongs to; its own where there is none."""
    marked = (f for f in file.parents if any((f / mark).exists() for mark in _MARKS))
    return next(marked, file.parent)
