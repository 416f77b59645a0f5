"""The helpers of TileGym's tests and benchmarks, wherever a project has copied them to.

Of `tests/common.py`, `benchmark_framework` calls `benchmark`, and that one of three functions, by
events, by a graph or by CUPTI. These three are replaced, so that the other two go on as they are.
The scripts in `tests/benchmark` call `profile_with_l2flush` of `bench_utils.py`.
"""

from __future__ import annotations

import functools
import inspect
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from tile_agent_pytest.bench import REP_MS, WARMUP_MS, has_gpu
from tile_agent_pytest.timing_takeover import TimingTakeover, without_gradients

THROUGH = "TileGym's benchmark"
FUNCTIONS = ("benchmark_fn", "benchmark_fn_cudagraph", "benchmark_fn_cupti")
_PARAMETERS = ("fn", "warmup", "rep", "min_rep", "initial_rep", "grad_to_none", "fast_flush")
PROFILED = "profile_with_l2flush"
_PROFILED_PARAMETERS = ("fn", "warmup", "rep")
"""The last two are numbers of calls."""
_MODULES = ("common", "bench_utils")
_BACKWARD = "benchmark.<locals>."
"""`benchmark` itself makes the callable of a backward pass; that of a forward pass it is given."""


def is_for(name: str) -> bool:
    """Of the module `common` of a package of tests, or the one beside its benchmarks."""
    return name.rpartition(".")[2] in _MODULES


def adapt(module: Any, takeover: TimingTakeover) -> None:
    """Replace those functions that have the parameters of TileGym's."""
    for name in FUNCTIONS:
        original = vars(module).get(name)
        if inspect.isfunction(original) and _is_tilegyms(original):
            replacement = _taken_over(original, takeover)
            takeover.replace(module, name, replacement)
            takeover.known.append((replacement, THROUGH))
    original = vars(module).get(PROFILED)
    if inspect.isfunction(original) and _parameters(original) == _PROFILED_PARAMETERS:
        replacement = _profiled(original, takeover)
        takeover.replace(module, PROFILED, replacement)
        takeover.known.append((replacement, f"TileGym's {PROFILED}"))


def _parameters(function: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


def _is_tilegyms(function: Any) -> bool:
    return _parameters(function)[: len(_PARAMETERS)] == _PARAMETERS


def _profiled(original: Callable[..., Any], takeover: TimingTakeover) -> Callable[..., Any]:
    """Returns the median, in ms, as the original does."""

    @functools.wraps(original)
    def profile_with_l2flush(fn: Callable[[], Any], *args: Any, **kwargs: Any) -> Any:
        if not takeover.serves():
            return original(fn, *args, **kwargs)
        return statistics.median(takeover.time(f"TileGym's {PROFILED}", fn).samples_ms)

    del profile_with_l2flush.__wrapped__
    profile_with_l2flush.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
    return profile_with_l2flush


def _taken_over(original: Callable[..., Any], takeover: TimingTakeover) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def benchmark(*args: Any, **kwargs: Any) -> Any:
        if not takeover.serves():
            return original(*args, **kwargs)
        asked = signature.bind(*args, **kwargs)
        asked.apply_defaults()
        given = asked.arguments
        # What runs before each call, and what picks some of its kernels, is done by the original.
        if given.get("setup_fn") is not None or given.get("kernel_filter") is not None:
            return original(*args, **kwargs)
        function = given["fn"]
        is_backward = getattr(function, "__qualname__", "").startswith(_BACKWARD)
        timing = takeover.time(
            THROUGH,
            without_gradients(function, given["grad_to_none"]),
            label="backward" if is_backward else "",
            warmup_ms=_duration_ms(given["warmup"], WARMUP_MS),
            rep_ms=_duration_ms(given["rep"], REP_MS),
        )
        return _figures(timing.samples_ms)

    del benchmark.__wrapped__
    benchmark.__signature__ = signature  # type: ignore[attr-defined]
    return benchmark


def _duration_ms(asked: Any, otherwise: float) -> float:
    return float(asked) if isinstance(asked, int | float) else otherwise


def _figures(samples_ms: Sequence[float]) -> dict[str, Any]:
    """What TileGym makes of its samples, in ms, without the times of single kernels."""
    mean = statistics.mean(samples_ms)
    std = statistics.stdev(samples_ms) if len(samples_ms) > 1 else 0.0
    ordered = [*samples_ms] if len(samples_ms) > 1 else [*samples_ms] * 2
    q25, _, q75 = statistics.quantiles(ordered, n=4, method="inclusive")
    return {
        "mean": mean,
        "std": std,
        "rel_std": 100 * std / mean,
        "median": statistics.median(samples_ms),
        "iqr": q75 - q25,
        "q25": q25,
        "q75": q75,
        "min": min(samples_ms),
        "max": max(samples_ms),
        "nrep": len(samples_ms),
        "peak_mem_mb": _peak_mb(),
    }


def _peak_mb() -> int:
    if not has_gpu():
        return 0
    import torch

    return int(torch.cuda.max_memory_allocated()) // (1024 * 1024)
