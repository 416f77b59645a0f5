"""What cuTile would compile one after the other, compiled side by side ahead of it.

Those are the configs of a search, and what calls launch that are about to be made. cuda.tile
compiles a kernel when it launches it for the first time, and one at a time in a process: forks of
the process compile them all into the cache on disk, where a launch then finds the code.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn
from unittest import mock

from tile_agent_pytest.forked_work import done_in_forks, forks
from tile_agent_pytest.process_tree import end_children

COMPILERS = ("tileiras", "ptxas")
LONGER = 1.5
"""Times what the search allows: side by side a compiler takes longer than alone."""


@dataclass(frozen=True)
class PendingCompilation:
    """What a launch asks cuda.tile to compile."""

    kernel: Any
    signature: Any
    context: Any
    capability: tuple[int, int]
    """Of the GPU: a fork cannot ask it."""

    def into_cache(self) -> bool:
        """Compile it, by cuda.tile's own function, which leaves the code on disk.

        Returns:
            Whether it takes longer than the search allows: it was given more than that.
        """
        tile: Any = importlib.import_module("cuda.tile")
        config = self.context.config
        allowed_s = config.compiler_timeout_sec
        if allowed_s is not None:
            config.compiler_timeout_sec = LONGER * allowed_s
        try:
            tile.kernel._compile(self.kernel, self.signature, self.context, self.capability)
        except tile.TileCompilerTimeoutError:
            return True
        finally:
            config.compiler_timeout_sec = allowed_s
        return False

    def is_asked_for(self, kernel: Any, signature: Any) -> bool:
        """Whether a launch of a kernel, which may be another object with the same hints, asks for
        the same code."""
        return bool(
            kernel._pyfunc is self.kernel._pyfunc
            and kernel._compiler_options == self.kernel._compiler_options
            and signature == self.signature
        )


def compile_search_first(
    search: Callable[..., Any], *args: Any, **kwargs: Any
) -> list[PendingCompilation]:
    """Compile a kernel for each config of a search. What fails is left to the search.

    Args:
        search: `cuda.tile.tune.exhaustive_search`.
        args: what it is about to be given.
        kwargs: likewise.

    Returns:
        Those that take longer than the search allows: in it, they would take as long again.
    """
    with contextlib.suppress(Exception):
        given = inspect.signature(search).bind(*args, **kwargs).arguments
        if forks(len(given["search_space"])) > 1:
            return compile_side_by_side(_compilations(given))
    return []


def compile_calls_first(calls: Sequence[Callable[[], object]]) -> int:
    """Compile what calls launch first. What fails in one is left to the call itself.

    Args:
        calls: each is made, and ends where it launches what is not compiled yet.

    Returns:
        How many kernels there were to compile.
    """
    with contextlib.suppress(Exception):
        if "cuda.tile" in sys.modules and forks(len(calls)) > 1:
            compile_side_by_side(found := _asked_for(calls))
            return len(found)
    return 0


@contextlib.contextmanager
def ending_at_once(found: Sequence[PendingCompilation]) -> Iterator[None]:
    """Compilations that take too long end as they have ended ahead, while the block lasts."""
    if not found:
        yield
        return
    tile: Any = importlib.import_module("cuda.tile")
    original = tile.kernel._compile

    def compiled(kernel: Any, signature: Any, *rest: Any) -> Any:
        if any(each.is_asked_for(kernel, signature) for each in found):
            limit_s = found[0].context.config.compiler_timeout_sec
            text = (
                f"`tileiras` compiler exceeded timeout {limit_s}s, in a process ahead of this one"
            )
            raise tile.TileCompilerTimeoutError(text, "", None)
        return original(kernel, signature, *rest)

    with mock.patch.object(tile.kernel, "_compile", compiled):
        yield


@contextlib.contextmanager
def without_compilers_left() -> Iterator[None]:
    """What compilers that were given up have started ends with the block.

    cuda.tile kills its compiler where it takes too long; the assembler below it goes on, becomes a
    child of this process, and would run beside whatever is timed next.
    """
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            compiling: Any = importlib.import_module("cuda.tile._compile")
            with compiling._compiler_lock:  # no other thread is waiting for one
                end_children(COMPILERS)


def _compilations(given: Mapping[str, Any]) -> list[PendingCompilation]:
    """What the first launch of each config asks for."""
    return _asked_for(partial(_launch, given, config) for config in given["search_space"])


def _launch(given: Mapping[str, Any], config: Any) -> None:
    """As the search launches a config for the first time."""
    tile: Any = importlib.import_module("cuda.tile")
    kernel, hints = given["kernel"], given.get("hints_fn")
    chosen = kernel if isinstance(kernel, tile.kernel) else kernel(config)
    # of its own, so that no earlier launch has compiled it
    chosen = chosen.replace_hints(**(hints(config) if hints else {}))
    grid, arguments = given["grid_fn"](config), given["args_fn"](config)
    tile._cext.launch(given["stream"], grid, chosen, arguments)


def _asked_for(launches: Iterable[Callable[[], object]]) -> list[PendingCompilation]:
    """What each asks to be compiled. It ends there: nothing is launched that is not compiled."""
    found: list[PendingCompilation] = []
    tile: Any = importlib.import_module("cuda.tile")
    if tile._cext.default_tile_context.config.cache_dir is None:
        return []
    capability = tuple(tile._cext.get_compute_capability())

    def asked(kernel: Any, signature: Any, context: Any, *_: Any) -> NoReturn:
        found.append(PendingCompilation(kernel, signature, context, capability))
        raise _Asked

    with mock.patch.object(tile.kernel, "_compile", asked), _same_random_numbers():
        for launch in launches:
            with contextlib.suppress(Exception):  # what is refused here is refused later, too
                launch()
    return found


class _Asked(Exception):
    """A launch has said what it needs compiled."""


@contextlib.contextmanager
def _same_random_numbers() -> Iterator[None]:
    """Whoever makes arguments by them finds those that it would have found."""
    torch: Any = importlib.import_module("torch")
    with torch.random.fork_rng():
        yield


def compile_side_by_side(wanted: Sequence[PendingCompilation]) -> list[PendingCompilation]:
    """Have kernels compiled into the cache on disk, where there is one.

    Returns:
        Those that take longer than is allowed.
    """
    if not wanted or wanted[0].context.config.cache_dir is None:
        return []
    done = done_in_forks([each.into_cache for each in wanted], _with_a_lock_of_its_own)
    return [wanted[place] for place, too_long in sorted(done.items()) if too_long]


def _with_a_lock_of_its_own() -> None:
    """Who held the compiler's lock is not in this process."""
    compiling: Any = importlib.import_module("cuda.tile._compile")
    compiling._compiler_lock = threading.RLock()
