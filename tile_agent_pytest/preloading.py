"""What the fork server imports, so that its workers need not.

First what every session needs. Later what a project's tests were seen to import of what is
installed: `transformers` alone takes six seconds on some machines, and a comparison takes a dozen
workers. Nothing of the user's own is among it, and nothing that a fork would not survive: a process
of its own tries that before.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import site
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from tile_agent_pytest.process_tree import children

PRELOADED = ("numpy", "torch", "triton", "triton.language", "cuda.tile", "pytest")
EXTRAS = (
    "tile_agent_pytest.worker",
    "torch.utils._python_dispatch",
    "anyio.pytest_plugin",
    "_hypothesis_pytestplugin",
    "hypothesis",
    "anyio._backends._asyncio",
    "pytest_benchmark.plugin",
    "xdist.plugin",
    "xdist.looponfail",
    "torch.distributed.tensor",
    "triton.experimental.gluon",
    "triton.language.extra.libdevice",
    "numpy.random",
    "xdist.newhooks",
    "pytest_benchmark.hookspec",
    "pytest_benchmark.storage.file",
    "numpy.testing",
    "pdb",
    "platformdirs",
    "tomllib",
)
"""What else is imported, of what is installed: plugins, which pytest would compile anew in every
worker, what `torch.testing.assert_close` imports when it is first called, and what Triton does at
its first launch."""
_READ_BY_NO_IMPORT = ("PYTEST_", "PYTHON", "CUBLAS_WORKSPACE_CONFIG")
"""Variables that tests set, and that are read when a process starts, or a product is computed."""
TRIAL_S = 120
"""A trial that takes longer is no gain."""


def preload() -> tuple[list[str], dict[str, str]]:
    """Import what every session needs. Returns what was imported, and why the rest was not."""
    imported: list[str] = []
    missing: dict[str, str] = {}
    for name in PRELOADED:
        try:
            importlib.import_module(name)
            imported.append(name)
        except Exception as problem:
            missing[name] = f"{type(problem).__name__}: {problem}"
    _import((*EXTRAS, *_plugins_of_pytest()))
    return imported, missing


def preload_more(modules: Sequence[str], variables: Mapping[str, str]) -> str:
    """Import what a session was seen to import of what is installed.

    Args:
        modules: their names, in the order in which they were imported.
        variables: of the environment, which the session set.

    Returns:
        Why it was left; empty where it was done.
    """
    if why := _in_a_fork(lambda: _trial(modules, variables)):
        return _REFUSALS.get(why, "the trial ended")
    _import(modules)
    return ""


class InstalledImports:
    """What a session imports from now on of what is installed."""

    def __init__(self) -> None:
        self._known = set(sys.modules)
        self._variables = dict(os.environ)

    def described(self, replaced: Iterable[tuple[Any, str]]) -> dict[str, Any]:
        """Modules and variables that are new, as `preload_more` takes them.

        Args:
            replaced: owners and names of functions that stand for others in this process: a package
                that has one of them by its own name has to find it there when it is imported.
        """
        held = {id(getattr(owner, name)) for owner, name in replaced}
        roots = tuple(f"{root}{os.sep}" for root in _roots())
        found: list[str] = []
        others: set[str] = set()
        for name, module in list(sys.modules.items()):
            if name in self._known or not (file := _file_of(name, module)):
                continue
            if file.startswith(roots) and held.isdisjoint(map(id, vars(module).values())):
                found.append(name)
            else:
                others.add(_top(name))
        set_now = {k: v for k, v in os.environ.items() if self._variables.get(k) != v}
        return {
            "modules": [name for name in found if _top(name) not in others],
            "variables": {k: v for k, v in set_now.items() if not k.startswith(_READ_BY_NO_IMPORT)},
        }


def _import(names: Iterable[str]) -> None:
    for name in names:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a worker would walk, and so copy, all that it shares with us


def _plugins_of_pytest() -> list[str]:
    """Those that every session loads."""
    names = getattr(sys.modules.get("_pytest.config"), "default_plugins", ())
    return [f"_pytest.{name}" for name in names]


# --- what is installed --------------------------------------------------------------------------


def _roots() -> Iterator[str]:
    """The folders of the interpreter and of what was installed into it, or with `--target`."""
    paths = sysconfig.get_paths()
    yield from {paths[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    yield from site.getsitepackages()
    yield from (entry for entry in sys.path if entry and any(Path(entry).glob("*.dist-info")))


def _file_of(name: str, module: ModuleType) -> str:
    """Where it was read from; empty for one that was not, or has another name."""
    spec = getattr(module, "__spec__", None)
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) and getattr(spec, "name", None) == name else ""


def _top(name: str) -> str:
    return name.partition(".")[0]


# --- the trial ----------------------------------------------------------------------------------

_NOT_TO_BE_FORKED = {"grpc", "jaxlib", "ray", "tensorflow"}
"""They have threads that Python does not see, as OpenBLAS has, which mends itself in a fork."""
_IMPORTS_MORE, _SETS_LESS, _STARTS_THREADS, _LOSES_THE_GPU = 10, 11, 12, 13
_REFUSALS = {
    _IMPORTS_MORE: "by themselves the modules import others, which may be the user's",
    _SETS_LESS: "the tests set variables before they import",
    _STARTS_THREADS: "an import starts threads or processes",
    _LOSES_THE_GPU: "an import makes the GPU useless to forks",
}
"""Exit codes of a trial."""


def _trial(modules: Sequence[str], variables: Mapping[str, str]) -> int:
    """Import it all and see whether workers could be forked then."""
    had_gpu = _in_a_fork(_gpu_fails) == 0
    known = {_top(name) for name in sys.modules}
    _import(modules)
    now = {_top(name) for name, module in list(sys.modules.items()) if _file_of(name, module)}
    if now - known - {_top(name) for name in modules}:
        return _IMPORTS_MORE
    if any(os.environ.get(name) != value for name, value in variables.items()):
        return _SETS_LESS
    if threading.active_count() > 1 or children(os.getpid()) or now & _NOT_TO_BE_FORKED:
        return _STARTS_THREADS
    return _LOSES_THE_GPU if had_gpu and _in_a_fork(_gpu_fails) else 0


def _gpu_fails() -> int:
    import torch

    torch.zeros(1, device="cuda")
    return 0


def _in_a_fork(do: Callable[[], int]) -> int:
    """The exit code of a process that does it; not 0 where that ends in an exception."""
    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(BaseException):
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.alarm(TRIAL_S)
            code = do()
        os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)
