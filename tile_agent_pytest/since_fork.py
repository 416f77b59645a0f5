"""What a worker has imported itself: the last few of some thousand modules.

The fork server imports nothing of the user's. Who looks for the kernel's module, or for a helper of
the tests, need not look at what was there before the fork; to look at a module is to copy the page
that counts its references.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable
from typing import Any

_last: list[str] = []
"""The name of the module that was there last; none: nothing was marked."""
_before: set[str] = set()
"""The names of all that were there."""


def mark() -> None:
    """What is imported now is the fork server's."""
    _last[:] = [next(reversed(sys.modules))]
    _before.update(sys.modules)


def names() -> list[str]:
    """What has been imported since, in that order; everything where nothing was marked, or where
    the module that was last has been taken out."""
    found = itertools.takewhile(lambda name: name not in _last, reversed(sys.modules))
    return [*found][::-1]


def was_there(name: str) -> bool:
    """Whether the fork server had imported a module of that name."""
    return name in _before


def loaded_from(file_name: str) -> list[Any]:
    """The imported modules whose file bears the kernel's name.

    Mostly the worker has imported it. An installed copy may have been imported before the fork.
    """
    own = _with_file(file_name, map(sys.modules.get, names()))
    return own or _with_file(file_name, list(sys.modules.values()))


def _with_file(file_name: str, modules: Iterable[Any]) -> list[Any]:
    return [
        module
        for module in modules
        if isinstance(file := getattr(module, "__file__", None), str)
        and os.path.basename(file) == file_name  # noqa: PTH119 - may be no path at all
    ]
