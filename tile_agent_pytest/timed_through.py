"""What a test times with, by the names in its code: before anything of it has run."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

_DEEPEST = 5


class TimingNames:
    """Finds what is known to time in the code of a test and of the helpers that it calls.

    Args:
        known: what times, and what people call that.
        root: of the checkout; helpers outside of it are no part of the project.
        kernel_name: name of the kernel's file: what that times is its own.
    """

    def __init__(self, known: Sequence[tuple[Any, str]], root: Path, kernel_name: str) -> None:
        self._known = {id(value): (value, name) for value, name in known}
        self._root = root.resolve()
        self._kernel_name = kernel_name
        self._found: dict[tuple[Any, Any], frozenset[str]] = {}

    def of(self, item: Any) -> list[str]:
        """What a collected test, or a fixture of it, times with; sorted."""
        if not self._known:
            return []
        fixtures = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
        functions = [getattr(item, "function", None)]
        functions += [definition.func for found in fixtures.values() for definition in found[-1:]]
        owner = getattr(item, "cls", None)
        return sorted({name for function in functions for name in self._at_once(function, owner)})

    def _at_once(self, function: Any, owner: Any) -> frozenset[str]:
        """Found once for all parameters of a test."""
        if (function, owner) not in self._found:
            self._found[function, owner] = frozenset(self._in(function, owner, set(), 0))
        return self._found[function, owner]

    def _in(self, value: Any, owner: Any, seen: set[int], depth: int) -> Iterator[str]:
        if depth > _DEEPEST or id(value) in seen:
            return
        seen.add(id(value))
        if known := self._known.get(id(value)):
            yield known[1]
            return
        function = value
        if isinstance(value, types.MethodType | staticmethod | classmethod):
            function = value.__func__
        if not isinstance(function, types.FunctionType):
            report = inspect.getattr_static(value, "fn", None)
            if isinstance(report, types.FunctionType):
                yield from self._in(report, owner, seen, depth + 1)
            return
        if depth and not self._is_of_the_project(function):  # a fixture may be a plugin's
            return
        names = list(_names(function.__code__))
        for part in _named(function, names, owner):
            yield from self._in(part, owner, seen, depth + 1)
        if wrapped := getattr(function, "__wrapped__", None):
            yield from self._in(wrapped, owner, seen, depth + 1)

    def _is_of_the_project(self, function: Callable[..., Any]) -> bool:
        file = Path(function.__code__.co_filename)
        return file.name != self._kernel_name and file.is_relative_to(self._root)


def _names(code: types.CodeType) -> Iterator[str]:
    """All names of a function's code, and of the functions within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _named(function: types.FunctionType, names: Sequence[str], owner: Any) -> Iterator[Any]:
    """What names stand for: globals, methods beside it, what modules hold, what it closes over."""
    modules = []
    for name in names:
        for value in (
            function.__globals__.get(name),
            sys.modules.get(name),
            inspect.getattr_static(owner, name, None),
        ):
            if isinstance(value, types.ModuleType):
                modules.append(value)
            elif value is not None:
                yield value
    for module in modules:
        for name in names:
            value = vars(module).get(name)
            if isinstance(value, types.ModuleType):
                if value not in modules:
                    modules.append(value)
            elif value is not None:
                yield value
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            continue
