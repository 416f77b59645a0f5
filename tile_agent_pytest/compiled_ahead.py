"""The configs of Triton's tuner compiled side by side, before it times them one after the other.

Triton compiles a config when it times it, on one processor: thirty configs of a kernel of a few
lines keep fifteen others waiting for a quarter of a minute, for each value of the tuner's key and
once more for each candidate. Forks of the process compile them all into Triton's cache on disk.
What is timed is the same: the tuner finds the code in the kernel's own cache.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any

from tile_agent_pytest.forked_work import done_in_forks, forks
from tile_agent_pytest.launch_functions import unwrapped

_waiting: weakref.WeakKeyDictionary[Any, Sequence[Any]] = weakref.WeakKeyDictionary()
"""Tuner -> the configs that it is about to time, if it does not find its choice on disk."""


def compile_configs_first(tuner: Any) -> None:
    """Have a class of Triton's, its `Autotuner`, compile all configs before it times the first.

    A Triton that cannot compile several kernels at once, before 3.5, is left as it is, and so is
    one that interprets them.
    """
    if os.environ.get("TRITON_INTERPRET") == "1":
        return
    with contextlib.suppress(ImportError):
        importlib.import_module("triton.runtime._async_compile")
        tuner.prune_configs = _announced(tuner.prune_configs)
        tuner._bench = _after_compiling(tuner._bench)


def _announced(prune_configs: Callable[..., Any]) -> Callable[..., list[Any]]:
    @functools.wraps(prune_configs)
    def announced(tuner: Any, *args: Any, **kwargs: Any) -> list[Any]:
        configs = _waiting[tuner] = list(prune_configs(tuner, *args, **kwargs))
        return configs

    return announced


def _after_compiling(bench: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(bench)
    def after_compiling(tuner: Any, *args: Any, config: Any, **meta: Any) -> Any:
        if configs := _waiting.pop(tuner, None):
            _compile(tuner, configs, args, meta)
        return bench(tuner, *args, config=config, **meta)

    return after_compiling


def _compile(
    tuner: Any, configs: Sequence[Any], args: tuple[Any, ...], meta: Mapping[str, Any]
) -> None:
    """Compile a kernel for each config. What fails is compiled again when it is to be timed, and
    the tuner then meets what is wrong."""
    asynchronous = importlib.import_module("triton.runtime._async_compile")
    if asynchronous.active_mode.get() is not None:
        return
    if forks(len(configs)) < 2:
        return
    asked = _Compilations()
    try:
        with unwrapped(), asynchronous.AsyncCompileMode(asked, ignore_errors=True), asked:
            for config in configs:
                with contextlib.suppress(Exception):
                    _begin(tuner, config, args, meta)
            asked.compile()
    finally:
        asynchronous.active_mode.set(None)  # Triton 3.6 leaves it where something raises
        for cache in _caches(tuner):
            for key in [k for k, v in cache.items() if isinstance(v, asynchronous.FutureKernel)]:
                del cache[key]  # of a compilation that failed: nothing to launch comes of it


class _Compilations(Executor):
    """Takes what is to be compiled, and has it done at the end. Use it in a `with`."""

    def __init__(self) -> None:
        self._asked: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Take a compilation."""
        future: Future[Any] = Future()
        self._asked.append((future, functools.partial(fn, *args, **kwargs)))
        return future

    def compile(self) -> None:
        """Compile in forks; this process then reads from disk what they have left there."""
        done = done_in_forks([compiling for _, compiling in self._asked])
        for place in done:
            future, compiling = self._asked[place]
            future.set_result(compiling())

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """Fail what is not there: who asked waits for all of it."""
        for future, _ in self._asked:
            if not future.done():
                future.set_exception(RuntimeError("not compiled ahead"))


def _begin(tuner: Any, config: Any, args: tuple[Any, ...], meta: Mapping[str, Any]) -> None:
    given = {**meta, **config.all_kwargs(), "warmup": True}
    if config.pre_hook and any(hasattr(x, "block_shape") for x in (*args, *meta.values())):
        # A hook gives a descriptor its shape, which is compiled in; what else it does can wait.
        config.pre_hook({**tuner.nargs, **given})
    tuner.fn.run(*args, **given)


def _caches(tuner: Any) -> Iterator[dict[Any, Any]]:
    """Those in which the kernel's function keeps what it was compiled to, one a device."""
    function = tuner.fn
    while function is not None and not hasattr(function, "device_caches"):
        function = getattr(function, "fn", None)
    for cache, *_ in getattr(function, "device_caches", {}).values():
        yield cache
