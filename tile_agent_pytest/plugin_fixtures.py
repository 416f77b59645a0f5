"""Which plugins of pytest hold fixtures, found out once for all workers.

Every session asks each name of each plugin whether it is a fixture. Most of pytest's own modules
hold none, which costs a seventh of a bare session's start, and what a fork server has imported is
the same in every worker.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any


def ask_no_more(names: Iterable[str]) -> None:
    """Have sessions of this process, and of its forks, look for no fixture where there is none.

    Before pytest 8.4 a fixture is a function like others: there they go on looking.

    Args:
        names: of modules that have been imported, as `_pytest.terminal`.
    """
    kind = getattr(sys.modules.get("_pytest.fixtures"), "FixtureFunctionDefinition", None)
    manager = getattr(sys.modules.get("_pytest.fixtures"), "FixtureManager", None)
    if kind is None or manager is None:
        return
    modules = [sys.modules[name] for name in names if name in sys.modules]
    without = {
        each
        for each in modules
        if not any(isinstance(value, kind) for value in vars(each).values())
    }
    look = manager.parsefactories

    @functools.wraps(look)
    def look_elsewhere(self: Any, *args: Any, **kwargs: Any) -> None:
        holder = kwargs.get("holder", args[0] if args else None)
        if not (isinstance(holder, ModuleType) and holder in without):
            look(self, *args, **kwargs)

    manager.parsefactories = look_elsewhere
