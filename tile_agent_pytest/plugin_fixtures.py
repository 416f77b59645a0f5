"""Which plugins of pytest hold fixtures, found out once for all workers.

Every session asks each name of each plugin whether it is a fixture, and so all that a plugin's
module imports. Most of pytest's own modules and objects hold none, which costs a fifth of a bare
session's start, and what a fork server has imported is the same in every worker.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any


def ask_no_more(names: Iterable[str]) -> None:
    """Have sessions of this process, and of its forks, look for fixtures only where there are some.

    Before pytest 8.4 a fixture is a function like others: there they go on looking.

    Args:
        names: of modules that have been imported, as `_pytest.terminal`.
    """
    kind = getattr(sys.modules.get("_pytest.fixtures"), "FixtureFunctionDefinition", None)
    manager = getattr(sys.modules.get("_pytest.fixtures"), "FixtureManager", None)
    if kind is None or manager is None:
        return
    modules = [sys.modules[name] for name in names if name in sys.modules]
    shorter = {each: _with_those_alone(each, kind) for each in modules}
    without = {each for each in _classes(modules) if not _holds(each, kind)}
    look = manager.parsefactories

    @functools.wraps(look)
    def look_elsewhere(self: Any, *args: Any, **kwargs: Any) -> None:
        holder = kwargs.get("holder", args[0] if len(args) > 1 else None)
        if isinstance(holder, ModuleType) and holder in shorter:
            if (short := shorter[holder]) is None:
                return
            if "holder" in kwargs:
                kwargs["holder"] = short
            else:
                args = (short, *args[1:])
        elif type(holder) in without:
            return
        look(self, *args, **kwargs)

    manager.parsefactories = look_elsewhere


def _with_those_alone(module: ModuleType, kind: type) -> ModuleType | None:
    """A module with the fixtures of another and nothing else; None where it has none."""
    held = {name: value for name, value in vars(module).items() if isinstance(value, kind)}
    if not held:
        return None
    short = ModuleType(module.__name__)
    vars(short).update(held)
    return short


def _classes(modules: Iterable[ModuleType]) -> set[type]:
    """Those that the modules themselves define: a plugin may be an instance of one."""
    return {
        value
        for module in modules
        for value in vars(module).values()
        if inspect.isclass(value) and value.__module__ == module.__name__
    }


def _holds(holder: type, kind: type) -> bool:
    return any(isinstance(value, kind) for base in holder.__mro__ for value in vars(base).values())
