"""The configs of Triton's tuner compiled side by side, before it times them one after the other.

Triton compiles a config when it times it, on one processor: thirty configs of a kernel of a few
lines keep fifteen others waiting for a quarter of a minute, for each value of the tuner's key and
once more for each candidate. What is timed is the same: the tuner finds the code in Triton's cache.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tile_agent_pytest.launch_functions import unwrapped

_waiting: dict[int, Sequence[Any]] = {}
"""Tuner -> the configs that it is about to time, if it does not find its choice on disk."""


def compile_ahead(tuner: Any) -> None:
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


def _announced(prune_configs: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    @functools.wraps(prune_configs)
    def announced(tuner: Any, *args: Any, **kwargs: Any) -> list[Any]:
        configs = _waiting[id(tuner)] = prune_configs(tuner, *args, **kwargs)
        return configs

    return announced


def _after_compiling(bench: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(bench)
    def after_compiling(tuner: Any, *args: Any, config: Any, **meta: Any) -> Any:
        if configs := _waiting.pop(id(tuner), None):
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
    workers = min(len(configs), len(os.sched_getaffinity(0)))
    with (
        unwrapped(),
        ThreadPoolExecutor(workers) as pool,
        asynchronous.AsyncCompileMode(pool, ignore_errors=True),
    ):
        for config in configs:
            given = {**meta, **config.all_kwargs(), "warmup": True}
            with contextlib.suppress(Exception):
                if config.pre_hook:  # it may give a descriptor its shape, which is compiled in
                    config.pre_hook({**tuner.nargs, **given})
                tuner.fn.run(*args, **given)
