"""`triton.testing`: `do_bench`, its relatives, and the configs of `perf_report`."""

from __future__ import annotations

import functools
import inspect
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tile_agent_pytest.bench import REP_MS, WARMUP_MS
from tile_agent_pytest.timing_takeover import TimingTakeover, without_gradients

FUNCTIONS = ("do_bench", "do_bench_cudagraph", "do_bench_proton", "do_bench_cudagraph_proton")
_OF_THE_TABLE = ("diff_col", "save_precision")
"""What a report's run takes that is not for the function."""
_SUMMARIES: Mapping[str, Callable[[list[float]], Any]] = {
    "all": list,
    "max": max,
    "mean": statistics.mean,
    "median": statistics.median,
    "min": min,
}


def is_for(name: str) -> bool:
    """Of Triton's own module only."""
    return name == "triton.testing"


def adapt(module: Any, takeover: TimingTakeover) -> None:
    """Replace the functions that this release has, and have reports name what they time."""
    for name in FUNCTIONS:
        original = vars(module).get(name)
        if original is not None:
            replacement = _taken_over(original, f"triton.testing.{name}", takeover)
            takeover.replace(module, name, replacement)
            takeover.known.append((replacement, f"triton.testing.{name}"))
    mark = vars(module).get("Mark")
    if mark is not None and callable(vars(mark).get("_run")):
        takeover.replace(mark, "_run", _naming(mark._run, takeover))
        takeover.replace(mark, "run", _undrawn(mark.run, takeover))


def _taken_over(
    original: Callable[..., Any], through: str, takeover: TimingTakeover
) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def do_bench(*args: Any, **kwargs: Any) -> Any:
        if not takeover.serves():
            return original(*args, **kwargs)
        asked = _understood(signature, args, kwargs)
        if asked is None:
            return original(*args, **kwargs)
        function = without_gradients(asked["fn"], asked.get("grad_to_none"))
        timing = takeover.time(
            through,
            function,
            warmup_ms=asked.get("warmup", WARMUP_MS),
            rep_ms=asked.get("rep", REP_MS),
        )
        if (quantiles := asked.get("quantiles")) is not None:
            found = [_quantile(timing.samples_ms, q) for q in quantiles]
            return found[0] if len(found) == 1 else found
        return _SUMMARIES[asked.get("return_mode", "mean")](list(timing.samples_ms))

    del do_bench.__wrapped__
    do_bench.__signature__ = signature  # type: ignore[attr-defined]
    return do_bench


def _understood(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The arguments by name; None where the original has to say what is wrong with them."""
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return None
    bound.apply_defaults()
    asked = dict(bound.arguments)
    quantiles = asked.get("quantiles")
    durations = (asked.get("warmup", WARMUP_MS), asked.get("rep", REP_MS))
    if (
        not callable(asked.get("fn"))
        or asked.get("return_mode", "mean") not in _SUMMARIES
        or not all(isinstance(duration, int | float) for duration in durations)
        or (quantiles is not None and not _are_quantiles(quantiles))
    ):
        return None
    return asked


def _are_quantiles(asked: Any) -> bool:
    return (
        isinstance(asked, list | tuple)
        and bool(asked)
        and all(isinstance(q, int | float) and 0 <= q <= 1 for q in asked)
    )


def _quantile(samples_ms: Sequence[float], q: float) -> float:
    """Interpolated between the two samples around it."""
    ordered = sorted(samples_ms)
    place = q * (len(ordered) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low + (high - low) * (place - math.floor(place))


def _naming(run: Callable[..., Any], takeover: TimingTakeover) -> Callable[..., Any]:
    """A report's loop over x values and lines, in which each timing has their name."""

    @functools.wraps(run)
    def _run(mark: Any, bench: Any, *args: Any, **kwargs: Any) -> Any:
        function = mark.fn
        names = (*_own(mark, bench), *bench.x_names, bench.line_arg)

        @functools.wraps(function)
        def named(**given: Any) -> Any:
            said = [f"{name}={_written(given[name])}" for name in names if name in given]
            with takeover.labelled(" ".join(said)):
                return function(**given)

        mark.fn = named
        try:
            return run(mark, bench, *args, **kwargs)
        finally:
            mark.fn = function

    return _run


def _undrawn(run: Callable[..., Any], takeover: TimingTakeover) -> Callable[..., Any]:
    """A report's run, of which a perf test needs the timings alone: no plot, and no file.

    Only who wants its table back gets it, and needs matplotlib for that, as Triton does.
    """
    signature = inspect.signature(run)

    @functools.wraps(run)
    def measured(*args: Any, **kwargs: Any) -> Any:
        if not takeover.serves():
            return run(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.arguments |= {"show_plots": False, "save_path": ""}
        if bound.arguments.get("return_df"):
            return run(*bound.args, **bound.kwargs)
        mark, given = args[0], bound.arguments.get("kwargs", {})
        for bench in _benchmarks(mark):
            _each_config(mark, bench, given, takeover)
        return None

    return measured


def _benchmarks(mark: Any) -> Sequence[Any]:
    several = mark.benchmarks
    return several if isinstance(several, list | tuple) else [several]


def _own(mark: Any, bench: Any) -> list[str]:
    """The fixed arguments of one of a report's benchmarks by which it differs from the others."""
    return [
        name
        for name, value in bench.args.items()
        if any(_written(each.args.get(name)) != _written(value) for each in _benchmarks(mark))
    ]


def _each_config(mark: Any, bench: Any, given: Mapping[str, Any], takeover: TimingTakeover) -> None:
    """What `_run` calls the function with, in its order."""
    given = {name: value for name, value in given.items() if name not in _OF_THE_TABLE}
    own = {name: bench.args[name] for name in _own(mark, bench)}
    for x in bench.x_vals:
        values = x if isinstance(x, list | tuple) else [x for _ in bench.x_names]
        for line in bench.line_vals:
            named = dict(zip(bench.x_names, values, strict=True)) | {bench.line_arg: line}
            said = " ".join(f"{name}={_written(v)}" for name, v in (own | named).items())
            with takeover.labelled(said):
                mark.fn(**named, **bench.args, **given)


def _written(value: Any) -> str:
    """A value of a config, as every process writes it: an object may print its address."""
    if isinstance(value, str | int | float | None):
        return str(value)
    name = getattr(value, "__name__", None)
    text = name if isinstance(name, str) else str(value)
    return type(value).__name__ if " at 0x" in text else text
