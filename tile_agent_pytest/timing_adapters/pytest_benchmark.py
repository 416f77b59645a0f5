"""pytest-benchmark's `benchmark` fixture: `benchmark(run)` and `benchmark.pedantic(run)`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tile_agent_pytest.timing_takeover import TimingTakeover

THROUGH = "pytest-benchmark"
_NEEDED = ("__call__", "pedantic", "_make_stats")


def is_for(name: str) -> bool:
    """Of the module that defines the fixture's class."""
    return name == "pytest_benchmark.fixture"


def adapt(module: Any, takeover: TimingTakeover) -> None:
    """Replace the two ways to call the fixture, in the releases that have these."""
    fixture = vars(module).get("BenchmarkFixture")
    if fixture is None or not all(callable(vars(fixture).get(name)) for name in _NEEDED):
        return
    takeover.replace(fixture, "__call__", _called(fixture.__call__, takeover))
    takeover.replace(fixture, "pedantic", _pedantic(fixture.pedantic, takeover))
    takeover.known.append((fixture, THROUGH))


def _called(original: Callable[..., Any], takeover: TimingTakeover) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(fixture: Any, function_to_benchmark: Any, /, *args: Any, **kwargs: Any) -> Any:
        if not (_is_fresh(fixture) and takeover.serves()):
            return original(fixture, function_to_benchmark, *args, **kwargs)
        return _timed(fixture, "benchmark(...)", function_to_benchmark, args, kwargs, takeover)

    del call.__wrapped__
    return call


def _pedantic(original: Callable[..., Any], takeover: TimingTakeover) -> Callable[..., Any]:
    @functools.wraps(original)
    def pedantic(
        fixture: Any,
        target: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        setup: Any = None,
        teardown: Any = None,
        **others: Any,
    ) -> Any:
        """Where each call has arguments of its own, the fixture times by itself."""
        if setup or teardown or not (_is_fresh(fixture) and takeover.serves()):
            return original(fixture, target, args, kwargs, setup, teardown, **others)
        return _timed(fixture, "benchmark.pedantic(...)", target, args, kwargs or {}, takeover)

    del pedantic.__wrapped__
    return pedantic


def _is_fresh(fixture: Any) -> bool:
    """It times one callable in a test, and nothing where it is switched off."""
    return bool(fixture.enabled) and not fixture._mode


def _timed(
    fixture: Any,
    mode: str,
    target: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    takeover: TimingTakeover,
) -> Any:
    """What the target returns, once the fixture holds the samples as its own."""
    fixture._mode = mode
    try:
        timing = takeover.time(THROUGH, functools.partial(target, *args, **kwargs))
        stats = fixture._make_stats(1)
        for sample_ms in timing.samples_ms:
            stats.update(sample_ms / 1e3)
        return target(*args, **kwargs)
    except Exception:
        fixture.has_error = True
        raise
