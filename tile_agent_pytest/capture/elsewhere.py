"""Modules that may launch the kernels of another file: they hold one of these, or that module.

Tests and scripts do so, too, but they are no code that somebody wants tests of.
"""

from __future__ import annotations

import os
import re
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
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
    """(name in the module, name in the file): of a kernel, or of a class with kernels in it. The
    first is dotted where the module has it of a package, `kernels.softmax`; the second is empty for
    the file itself."""


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
        own = {
            id(value): name
            for name, value in vars(file).items()
            if _is_kernel(value, kernel) or _has_kernels(value, file, kernel)
        }
        own[id(file)] = ""
        held = [(name, own[id(value)]) for name, value in vars(module).items() if id(value) in own]
        if names := (*held, *_of_packages(module, path, kernel, own)):
            return HeldKernels(file.__name__, str(Path(path).resolve()), names)
    return None


def _of_packages(
    module: types.ModuleType, path: str, kernel: Path, own: Mapping[int, str]
) -> Iterator[tuple[str, str]]:
    """What a module names of the packages around the file, as in `kernels.softmax[grid](...)`."""
    around = {str(folder / "__init__.py") for folder in kernel.parents}
    held = [(name, value) for name, value in vars(module).items() if _is_one_of(value, around)]
    text = Path(path).read_text(encoding="utf-8", errors="replace") if held else ""
    for name, package in held:
        for inner, value in vars(package).items():
            known = own.get(id(value), "")
            if known and re.search(rf"\b{re.escape(name)}\.{re.escape(inner)}\b", text):
                yield f"{name}.{inner}", known


def _is_one_of(value: object, files: Collection[str]) -> bool:
    return isinstance(value, types.ModuleType) and (
        os.path.realpath(vars(value).get("__file__") or "") in files
    )


def _has_kernels(value: object, file: types.ModuleType, path: Path) -> bool:
    """Whether a class of the file has kernels among its attributes, static ones too."""
    if not isinstance(value, type) or value.__module__ != file.__name__:
        return False
    held = (
        each.__func__ if isinstance(each, staticmethod) else each for each in vars(value).values()
    )
    return any(_is_kernel(each, path) for each in held)


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
