"""The playbook: every optimization tile-agent can make, one a file.

To add one, write its file beside the others: it is found by its place, and so are its tests.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import TypeVar

from agent.analysis.common.kernels import KernelClass
from agent.errors import UsageError, did_you_mean
from agent.playbook import cutile, triton
from agent.playbook.base import Advice, Entry, Optimization


def _entries() -> Iterator[Entry]:
    """One of each class of entry, by the name of its file."""
    for package in (cutile, triton):
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            module = import_module(found.name)
            for value in vars(module).values():
                is_entry = isinstance(value, type) and issubclass(value, Entry)
                if is_entry and value.__module__ == module.__name__:
                    yield value()


_FOUND = tuple(_entries())

PLAYBOOK: tuple[Optimization, ...] = tuple(e for e in _FOUND if isinstance(e, Optimization))

ADVICE: tuple[Advice, ...] = tuple(e for e in _FOUND if isinstance(e, Advice))
"""The entries that need judgement; a program can only say where they fit."""

LAST = 1000
"""Priority of an optimization for a kernel class that it does not name."""


def for_backend(backend: str) -> tuple[Optimization, ...]:
    """The optimizations of one kernel language."""
    return tuple(o for o in PLAYBOOK if o.backend == backend)


def ordered(backend: str, kernel_class: KernelClass) -> tuple[Optimization, ...]:
    """Those of one kernel language, the most promising for a kernel class first."""
    return by_class(for_backend(backend), kernel_class.value)


_E = TypeVar("_E", Optimization, Entry)


def by_class(entries: Iterable[_E], kernel_class: str) -> tuple[_E, ...]:
    """Entries, the most promising for the kernel class of that value first."""

    def priority(entry: Entry) -> int:
        return next((n for c, n in entry.priority.items() if c.value == kernel_class), LAST)

    return tuple(sorted(entries, key=priority))


def find(name: str) -> Entry:
    """The entry of that name, with a transform or without.

    Raises:
        UsageError: there is none; the message names those it is near to.
    """
    by_name: dict[str, Entry] = {entry.name: entry for entry in (*PLAYBOOK, *ADVICE)}
    if name in by_name:
        return by_name[name]
    mend = did_you_mean(name, by_name) or "see `tile-agent playbook list`"
    raise UsageError(f"no optimization is called {name!r}; {mend}")


def get(name: str) -> Optimization:
    """The optimization of that name.

    Raises:
        UsageError: there is none that a program can carry out; the message says what to do.
    """
    entry = find(name)
    if not isinstance(entry, Optimization):
        raise UsageError(
            f"{name} needs judgement, so that no program carries it out: "
            f"read `tile-agent playbook show {name}`"
        )
    return entry
