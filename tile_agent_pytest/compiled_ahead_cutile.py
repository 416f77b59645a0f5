"""The configs of cuTile's search compiled side by side, before it times them one after the other.

cuda.tile compiles a config when it launches it for the first time, and one at a time in a process:
forks of the process compile them all into the cache on disk, where the search then finds the code.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn
from unittest import mock

from tile_agent_pytest.forked_work import done_in_forks, forks


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
        if forks(len(given["search_space"])) > 1:
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
    if wanted and wanted[0].context.config.cache_dir is not None:
        done_in_forks([each.into_cache for each in wanted], _with_a_lock_of_its_own)


def _with_a_lock_of_its_own() -> None:
    """Who held the compiler's lock is not in this process."""
    compiling: Any = importlib.import_module("cuda.tile._compile")
    compiling._compiler_lock = threading.RLock()
