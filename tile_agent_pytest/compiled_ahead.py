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
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from tile_agent_pytest.compiled_apart import for_another_process, is_plain
from tile_agent_pytest.forked_work import done_in_forks, forks
from tile_agent_pytest.launch_functions import unwrapped
from tile_agent_pytest.stand_in_driver import StandInDriver

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


def leave_uncompiled(tuner: Any, wanted: Collection[Any]) -> None:
    """Of the configs that a tuner is about to time, compile no others than these."""
    if configs := _waiting.get(tuner):
        _waiting[tuner] = [config for config in configs if config in wanted]


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
    active_mode = importlib.import_module("triton.runtime._async_compile").active_mode
    target: Any = importlib.import_module("triton.runtime").driver.active.get_current_target()
    function = _function(tuner)
    can_fork = target.backend == "cuda" and forks(len(configs)) > 1 and is_plain(function)
    if active_mode.get() is not None or not can_fork:
        return
    asked = _Compilations(StandInDriver(target.arch))
    active_mode.set(asked)
    try:
        with unwrapped():
            for config in configs:
                with contextlib.suppress(Exception):
                    _begin(tuner, config, args, meta)
    finally:
        active_mode.set(None)
        for cache, *_ in getattr(function, "device_caches", {}).values():
            for key in [key for key, kernel in cache.items() if kernel is _PENDING]:
                del cache[key]
    with contextlib.suppress(Exception):  # what is not there the tuner compiles
        asked.compile()


_PENDING = object()
"""In the place of a kernel that is to be compiled."""


class _Compilations:
    """What Triton is asked to compile, as its `AsyncCompileMode` is, of several versions."""

    def __init__(self, stand_in: StandInDriver) -> None:
        self._stand_in = stand_in
        self._asked: dict[Any, tuple[Callable[[], Any], Callable[[Any], Any]]] = {}

    def submit(
        self, key: Any, compile_fn: Callable[[], Any], finalize_fn: Callable[[Any], Any], *_: Any
    ) -> object:
        """Take a compilation, and what is to be done with what comes of it."""
        self._asked.setdefault(key, (compile_fn, finalize_fn))
        return _PENDING

    def compile(self) -> None:
        """Compile in forks; this process then reads from disk what they have left there."""
        asked = list(self._asked.values())
        apart = ExitStack()
        done = done_in_forks(
            [compiling for compiling, _ in asked],
            lambda: apart.enter_context(for_another_process(self._stand_in)),
        )
        for compiling, finalize in (asked[place] for place in sorted(done)):
            finalize(compiling())


def _begin(tuner: Any, config: Any, args: tuple[Any, ...], meta: Mapping[str, Any]) -> None:
    given = {**meta, **config.all_kwargs(), "warmup": True}
    if config.pre_hook and any(hasattr(x, "block_shape") for x in (*args, *meta.values())):
        # A hook gives a descriptor its shape, which is compiled in; what else it does can wait.
        config.pre_hook({**tuner.nargs, **given})
    tuner.fn.run(*args, **given)


def _function(tuner: Any) -> Any:
    """The kernel's function, below heuristics; it keeps what it was compiled to, for each GPU."""
    function = tuner.fn
    while function is not None and not hasattr(function, "device_caches"):
        function = getattr(function, "fn", None)
    return function
