"""The configs of cuTile's search compiled side by side, before it times them one after the other.

cuda.tile compiles a config when it launches it for the first time, and one at a time in a process:
forks of the process compile them all into the cache on disk, where the search then finds the code.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn
from unittest import mock

from tile_agent_pytest.process_tree import kill_tree
from tile_agent_pytest.watchdog import allowed_bytes, memory_of

MOST_S = 120.0
"""Who has not compiled its configs by then is ended; the search compiles what is left."""
MOST_FORKS = 16
_SHARE = 0.25
"""Of the memory that workers may take: what a fork shares with this process counts as its own."""
_LOOK_S = 0.01


@dataclass(frozen=True)
class PendingCompilation:
    """What a launch asks cuda.tile to compile."""

    kernel: Any
    signature: Any
    context: Any
    capability: tuple[int, int]
    """Of the GPU: a fork cannot ask it."""

    def into_cache(self) -> None:
        """Compile it, by cuda.tile's own function, which leaves the code on disk."""
        tile: Any = importlib.import_module("cuda.tile")
        tile.kernel._compile(self.kernel, self.signature, self.context, self.capability)


def compile_search_first(search: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Compile a kernel for each config of a search. What fails is left to the search.

    Args:
        search: `cuda.tile.tune.exhaustive_search`.
        args: what it is about to be given.
        kwargs: likewise.
    """
    with contextlib.suppress(Exception):
        given = inspect.signature(search).bind(*args, **kwargs).arguments
        if _forks(len(given["search_space"])) > 1:
            compile_side_by_side(_compilations(given))


def _compilations(given: Mapping[str, Any]) -> list[PendingCompilation]:
    """What the first launch of each config asks for. It ends there: nothing is launched."""
    found: list[PendingCompilation] = []
    tile: Any = importlib.import_module("cuda.tile")
    if tile._cext.default_tile_context.config.cache_dir is None:
        return []
    capability = tuple(tile._cext.get_compute_capability())

    def asked(kernel: Any, signature: Any, context: Any, *_: Any) -> NoReturn:
        found.append(PendingCompilation(kernel, signature, context, capability))
        raise _Asked

    kernel, hints = given["kernel"], given.get("hints_fn")
    with mock.patch.object(tile.kernel, "_compile", asked), _same_random_numbers():
        for config in given["search_space"]:
            with contextlib.suppress(Exception):  # an argument that the search will refuse, too
                chosen = kernel if isinstance(kernel, tile.kernel) else kernel(config)
                # of its own, so that no earlier launch has compiled it
                chosen = chosen.replace_hints(**(hints(config) if hints else {}))
                grid, arguments = given["grid_fn"](config), given["args_fn"](config)
                tile._cext.launch(given["stream"], grid, chosen, arguments)
    return found


class _Asked(Exception):
    """A launch has said what it needs compiled."""


@contextlib.contextmanager
def _same_random_numbers() -> Iterator[None]:
    """Whoever makes arguments by them finds those that it would have found."""
    torch: Any = importlib.import_module("torch")
    with torch.random.fork_rng():
        yield


def compile_side_by_side(wanted: Sequence[PendingCompilation]) -> None:
    """Have kernels compiled into the cache on disk, where there is one."""
    count = _forks(len(wanted))
    if count < 2 or wanted[0].context.config.cache_dir is None:
        return
    running = {_fork(wanted[first::count]) for first in range(count)}
    deadline = time.monotonic() + MOST_S
    try:
        while running and time.monotonic() < deadline:
            for pid in list(running):
                if _has_ended(pid, os.WNOHANG):
                    running.discard(pid)
            time.sleep(_LOOK_S)
    finally:
        for pid in running:
            kill_tree(pid)  # with the compiler that it has started
            _has_ended(pid, 0)


def _forks(wanted: int) -> int:
    """How many for so many compilations: each counts with all of this process's memory."""
    room = int(_SHARE * allowed_bytes() / max(memory_of(os.getpid()), 1))
    return min(wanted, len(os.sched_getaffinity(0)), MOST_FORKS, room)


def _has_ended(pid: int, options: int) -> bool:
    try:
        return os.waitpid(pid, options)[0] != 0
    except ChildProcessError:  # somebody else has waited for it
        return True


def _fork(share: Sequence[PendingCompilation]) -> int:
    """A process that compiles a share, and touches no GPU, which it cannot."""
    if pid := os.fork():
        return pid
    try:
        compiling: Any = importlib.import_module("cuda.tile._compile")
        compiling._compiler_lock = threading.RLock()  # who held it is not in this process
        for compilation in share:
            with contextlib.suppress(Exception):
                compilation.into_cache()
    finally:
        os._exit(0)
