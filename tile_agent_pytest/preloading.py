"""What the fork server imports, so that its workers need not.

First what every session needs. Later what a project's tests were seen to import of what is
installed: `transformers` alone takes six seconds on some machines, and a comparison takes a dozen
workers. Nothing of the user's own is among it, and nothing that a fork would not survive: a process
of its own tries that before.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib
import importlib.abc
import json
import os
import select
import signal
import site
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from tile_agent_pytest import kept_config, kept_metadata, plugin_fixtures, since_fork
from tile_agent_pytest.process_tree import children, die_with_parent, kill_tree

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
    "readline",
    "platformdirs",
    "platformdirs.pytest_plugin",
    "tomllib",
    "faulthandler",
    "torch.utils._triton",
)
"""What else is imported, of what is installed: plugins, which pytest would compile anew in every
worker, what `torch.testing.assert_close` imports when it is first called, and what Triton does at
its first launch."""
_HOLDERS = ("_pytest.config", "tile_agent_pytest.plugin", "tile_agent_pytest.worker")
"""Where else plugins are from that every session has."""
_READ_BY_NO_IMPORT = ("PYTEST_", "PYTHON", "CUBLAS_WORKSPACE_CONFIG")
"""Variables that tests set, and that are read when a process starts, or a product is computed."""
_ASKS_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""Has torch tell whether there is a GPU without waking it."""
POLL_S = 0.05
TRIAL_S = 120
"""A trial that takes longer is no gain."""


def preload() -> tuple[list[str], dict[str, str]]:
    """Import what every session needs. Returns what was imported, and why the rest was not."""
    imported: list[str] = []
    missing: dict[str, str] = {}
    gc.disable()  # all of it stays; to look for garbage meanwhile takes a sixth of the time
    for name in PRELOADED:
        try:
            importlib.import_module(name)
            imported.append(name)
        except Exception as problem:
            missing[name] = f"{type(problem).__name__}: {problem}"
    plugins = (*EXTRAS, *_plugins_of_pytest())
    _import(plugins)
    kept_config.name_saved_runs()
    plugin_fixtures.ask_no_more((*plugins, *_HOLDERS))
    kept_config.prepare()
    kept_metadata.keep()
    kept_metadata.keep_digest_of_triton()
    _freeze()
    gc.enable()
    return imported, missing


def preload_more(
    modules: Sequence[str],
    variables: Mapping[str, Mapping[str, Any]],
    environment: Mapping[str, str],
    left: Sequence[str] | None = None,
) -> tuple[str, list[str]]:
    """Import what a session was seen to import of what is installed.

    Left are modules that wake the GPU, and those that were imported after the user's code had set a
    variable, which they may read.

    Args:
        modules: their names, in the order in which they were imported.
        variables: those of the environment which were set meanwhile; the digests of their
            `values`, and the modules `before` whose import that was.
        environment: variables that the session had from its beginning: where caches are.
        left: what a trial found that is to be left, in another server of the same run; None: it is
            tried here.

    Returns:
        Why nothing was imported, empty where something was; and what a trial found to be left.
    """
    ours = dict(os.environ)
    os.environ.update(environment)
    try:
        found: dict[str, Any] = {"why": "", "left": [*(left or ())]}
        if left is None:
            said = _in_a_fork(lambda: _trial(modules, variables))
            found = json.loads(said) if said else {"why": "the trial ended", "left": []}
        if not found["why"]:
            out = set(found["left"])
            _import_asleep([name for name in modules if out.isdisjoint(_with_packages(name))])
    finally:
        for name in environment:
            os.environ.pop(name, None)
            if name in ours:
                os.environ[name] = ours[name]
    return str(found["why"]), list(found["left"])


def _with_packages(name: str) -> Iterator[str]:
    """A module's name and those of the packages that it is in: it is imported with them."""
    while name:
        yield name
        name = name.rpartition(".")[0]


class InstalledImports:
    """What a session imports from now on of what is installed.

    Args:
        own: the folders of the user's own code.
        environment: variables that this session has, and the fork server has not: where caches
            are, and where modules are, which does not matter to what is imported.
    """

    def __init__(self, own: Iterable[str], environment: Mapping[str, str]) -> None:
        self._environment = {n: v for n, v in environment.items() if n != "PYTHONPATH"}
        self._own = tuple(f"{folder.rstrip(os.sep)}{os.sep}" for folder in own)
        self._known = set(since_fork.names())
        self._variables = _WatchedVariables()
        sys.meta_path.insert(0, self._variables)

    def described(self, replaced: Iterable[tuple[Any, str]]) -> dict[str, Any]:
        """Modules and variables that are new, as `preload_more` takes them; it watches no longer.

        Args:
            replaced: owners and names of functions that stand for others in this process: a package
                that has one of them by its own name has to find it there when it is imported.
        """
        held = {id(getattr(owner, name)) for owner, name in replaced}
        roots = tuple(f"{root}{os.sep}" for root in _roots())
        found: list[str] = []
        others: set[str] = set()
        for name in since_fork.names():
            if name in self._known or since_fork.was_there(name):
                continue
            module = sys.modules[name]
            if not (file := _file_of(name, module)):
                continue
            installed = file.startswith(roots) and not file.startswith(self._own)
            if installed and held.isdisjoint(map(id, vars(module).values())):
                found.append(name)
            else:
                others.add(_top(name))
        sys.meta_path.remove(self._variables)
        modules = [name for name in found if _top(name) not in others]
        variables = {
            name: {"values": values, "before": [m for m in modules if m not in earlier]}
            for name, (values, earlier) in self._variables.changed().items()
            if not name.startswith(_READ_BY_NO_IMPORT)
        }
        return {"modules": modules, "variables": variables, "environment": self._environment}


class _WatchedVariables(importlib.abc.MetaPathFinder):
    """Finds no module, but sees at each import which variables have been set since the last."""

    def __init__(self) -> None:
        self._seen = dict(os.environ)
        self._changed: dict[str, tuple[list[str], frozenset[str]]] = {}

    def find_spec(self, *_: object) -> None:
        """Look at the variables before it is imported."""
        self.changed()

    def changed(self) -> Mapping[str, tuple[list[str], frozenset[str]]]:
        """Name -> digests of its values, one after the other, and the modules that were imported
        before the first."""
        if (now := dict(os.environ)) != self._seen:
            loaded = frozenset(sys.modules)
            for name in self._seen.keys() | now.keys():
                if self._seen.get(name) != now.get(name):
                    values, _ = self._changed.setdefault(name, ([], loaded))
                    values.append(_digest(now.get(name)))
            self._seen = now
        return self._changed


def _digest(value: str | None) -> str:
    """Of a variable's value, which may be a secret; empty for one that is not set."""
    return "" if value is None else hashlib.sha256(value.encode()).hexdigest()


def _import(names: Iterable[str]) -> None:
    for name in names:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def _freeze() -> None:
    gc.collect()
    gc.freeze()  # a collection in a worker would walk, and so copy, all that it shares with us
    since_fork.mark()
    if adapters := sys.modules.get("tile_agent_pytest.timing_adapters"):  # with what a worker needs
        adapters.look_ahead()


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


def _trial(modules: Sequence[str], variables: Mapping[str, Mapping[str, Any]]) -> str:
    """Import it all and see whether workers could be forked then.

    Returns:
        JSON: `why` not, if not, and the modules that are to be `left`.
    """
    had_gpu = _in_a_fork(_use_gpu) is not None
    known = {_top(name) for name in sys.modules}
    left = _import_asleep(modules)
    for name, was in variables.items():
        if [_digest(os.environ.get(name))] != was["values"]:  # the user's code sets it
            left.update(was["before"])
    now = {_top(name) for name, module in list(sys.modules.items()) if _file_of(name, module)}
    why = ""
    if not had_gpu and _sees_gpu():
        why = "the GPU cannot be tried now"
    elif now - known - {_top(name) for name in modules}:
        why = "by themselves the modules import others, which may be the user's"
    elif threading.active_count() > 1 or children(os.getpid()) or now & _NOT_TO_BE_FORKED:
        why = "an import starts threads or processes"
    elif had_gpu and _in_a_fork(_use_gpu) is None:
        why = "an import makes the GPU useless to forks"
    return json.dumps({"why": why, "left": sorted(left)})


def _import_asleep(modules: Iterable[str]) -> set[str]:
    """Import them while the GPU sleeps. Returns those that fail, those that wake it, and what
    imports these; each of them is forgotten, so that whoever imports it next is found too."""
    found: set[str] = set()
    waking: set[str] = set()
    with _gpu_asleep(waking):
        for name in modules:
            try:
                importlib.import_module(name)
            except Exception:
                found.add(name)
            for woken in waking:
                package, _, last = woken.rpartition(".")
                sys.modules.pop(woken, None)
                if holder := sys.modules.get(package):
                    vars(holder).pop(last, None)
            found |= waking
            waking.clear()
    _freeze()
    return found


@contextlib.contextmanager
def _gpu_asleep(waking: set[str]) -> Iterator[None]:
    """In the block torch makes no CUDA context, which a fork could not use; what asks for one gets
    an error, and is noted with all that was importing it."""
    cuda = sys.modules.get("torch.cuda")
    if cuda is None:
        yield
        return

    asleep, wake, asked = True, cuda._lazy_init, os.environ.get(_ASKS_NVML)

    def guarded() -> None:
        if not asleep:  # whoever has kept it by another name
            wake()
            return
        waking.update(name for name, m in list(sys.modules.items()) if _is_importing(m))
        raise RuntimeError("no GPU is to be used while modules are imported")

    cuda._lazy_init, os.environ[_ASKS_NVML] = guarded, "1"  # type: ignore[attr-defined]
    try:
        yield
    finally:
        asleep = False
        cuda._lazy_init = wake  # type: ignore[attr-defined]
        del os.environ[_ASKS_NVML]
        if asked is not None:
            os.environ[_ASKS_NVML] = asked


def _is_importing(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _sees_gpu() -> bool:
    torch: Any = sys.modules.get("torch")
    with _gpu_asleep(set()):
        return bool(torch is not None and torch.cuda.is_available())


def _use_gpu() -> str:
    import torch

    torch.zeros(1, device="cuda")
    return "used"


def _in_a_fork(do: Callable[[], str]) -> str | None:
    """What it returns in a process of its own; None where that ends in another way, or too late."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            die_with_parent(signal.SIGKILL)
            with os.fdopen(theirs, "w", encoding="utf-8") as end:
                end.write(do())
            os._exit(0)
        os._exit(1)
    os.close(theirs)
    with os.fdopen(ours, "rb") as end:
        return _said(pid, end.fileno())


def _said(pid: int, descriptor: int) -> str | None:
    """All that a process writes until it ends; what it has started may hold the other end open."""
    os.set_blocking(descriptor, False)
    said, status, deadline = b"", None, time.monotonic() + TRIAL_S
    while status is None:
        select.select([descriptor], [], [], POLL_S)
        ended, code = os.waitpid(pid, os.WNOHANG)
        status = code if ended else None
        if status is None and time.monotonic() > deadline:
            kill_tree(pid)
            _, status = os.waitpid(pid, 0)
        with contextlib.suppress(BlockingIOError):
            while part := os.read(descriptor, 1 << 16):
                said += part
    return said.decode() if os.waitstatus_to_exitcode(status) == 0 else None
