"""One file for each way to time that people use: what it is replaced with in a worker.

A module here has

    is_for(name)              whether a module of that name may be the one it knows
    adapt(module, takeover)   replaces what is timed with, once that module has been imported

and is found by its place. Modules that are loaded are adapted at once, others when the tests import
them, before anybody can keep what is in them.
"""

from __future__ import annotations

import importlib
import importlib.abc
import os
import pkgutil
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Protocol, cast

from tile_agent_pytest import since_fork
from tile_agent_pytest.timing_takeover import TimingTakeover


class TimingAdapter(Protocol):
    """A module of this package."""

    @staticmethod
    def is_for(name: str) -> bool:
        """Whether a module of that name may be the one it knows."""

    @staticmethod
    def adapt(module: Any, takeover: TimingTakeover) -> None:
        """Replace what is timed with; nothing, where the module is another than it seemed."""


ADAPTERS: tuple[TimingAdapter, ...] = tuple(
    cast(TimingAdapter, importlib.import_module(f"{__name__}.{found.name}"))
    for found in pkgutil.iter_modules(__path__)
)


_looked_ahead: list[list[str]] = []
"""The modules that an adapter may know, of those that `since_fork` does not tell of."""


def look_ahead() -> None:
    """Find what adapters know among the modules that are loaded: thousands, and to ask for each of
    them in every worker was a twelfth of what one with a small test took."""
    _looked_ahead[:] = [[name for name in list(sys.modules) if _adapters_of(name)]]


def _adapters_of(name: str) -> list[TimingAdapter]:
    return [adapter for adapter in ADAPTERS if adapter.is_for(name)]


def install(takeover: TimingTakeover, kernel_name: str) -> None:
    """Replace what tests time with, now and in whatever is imported later.

    Args:
        takeover: asked at each timing.
        kernel_name: name of the kernel's file, which is no helper of the tests.
    """
    finder = _AdaptedModules(takeover, kernel_name)
    known = (*_looked_ahead[0], *since_fork.names()) if _looked_ahead else (*sys.modules,)
    for name in known:
        if (module := sys.modules.get(name)) is not None:
            finder.adapt(name, module)
    sys.meta_path.insert(0, finder)


class _AdaptedModules(importlib.abc.MetaPathFinder):
    """Finds what the other finders find, and has it adapted once it has been loaded."""

    def __init__(self, takeover: TimingTakeover, kernel_name: str) -> None:
        self._takeover = takeover
        self._kernel_name = kernel_name

    def adapt(self, name: str, module: ModuleType) -> None:
        """By each adapter that knows the module."""
        if not (adapters := _adapters_of(name)):
            return
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and os.path.basename(file) == self._kernel_name:  # noqa: PTH119
            return
        for adapter in adapters:
            adapter.adapt(module, self._takeover)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Of a module that an adapter may know; nothing of the others."""
        if not _adapters_of(fullname):
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _AdaptingLoader(spec.loader, self)
                return spec
        return None


class _AdaptingLoader(importlib.abc.Loader):
    """Another loader, and then the adapters."""

    def __init__(self, loader: Any, modules: _AdaptedModules) -> None:
        self._loader = loader
        self._modules = modules

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the other one does."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """As the other one does; then nothing of it is left that times by itself."""
        self._loader.exec_module(module)
        self._modules.adapt(module.__name__, module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
