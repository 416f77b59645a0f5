"""`torch.utils.benchmark.Timer`: its statement as a callable, its samples as a `Measurement`."""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable
from typing import Any

from tile_agent_pytest.bench import REP_MS
from tile_agent_pytest.timing_takeover import TimingTakeover

THROUGH = "torch.utils.benchmark.Timer"
METHODS = ("timeit", "blocked_autorange", "adaptive_autorange")
_DEFAULT_NUMBER = 1_000_000


def is_for(name: str) -> bool:
    """Of the module that defines the class."""
    return name == "torch.utils.benchmark.utils.timer"


def adapt(module: Any, takeover: TimingTakeover) -> None:
    """Replace the ways to measure that the class has."""
    timer = vars(module).get("Timer")
    common = vars(module).get("common")
    if timer is None or common is None:
        return
    for name in METHODS:
        if (original := vars(timer).get(name)) is not None:
            takeover.replace(timer, name, _taken_over(original, common, takeover))
    takeover.known.append((timer, THROUGH))


def _taken_over(
    original: Callable[..., Any], common: Any, takeover: TimingTakeover
) -> Callable[..., Any]:
    @functools.wraps(original)
    def measure(timer: Any, *args: Any, **kwargs: Any) -> Any:
        tells = callable(kwargs.get("callback")) or any(map(callable, args))
        if tells or not takeover.serves():
            return original(timer, *args, **kwargs)
        function = _callable_of(timer)
        if function is None:
            return original(timer, *args, **kwargs)
        with common.set_torch_threads(timer._task_spec.num_threads):
            timing = takeover.time(THROUGH, function, rep_ms=_duration_ms(kwargs))
        times_s = [sample_ms / 1e3 for sample_ms in timing.samples_ms]
        number = 1
        if original.__name__ == "timeit":
            number = kwargs.get("number", args[0] if args else _DEFAULT_NUMBER)
            times_s = [math.fsum(times_s) / len(times_s) * number]
        return common.Measurement(
            number_per_run=number, raw_times=times_s, task_spec=timer._task_spec
        )

    del measure.__wrapped__
    return measure


def _duration_ms(kwargs: dict[str, Any]) -> float:
    """How long it was to take at the least."""
    seconds = kwargs.get("min_run_time")
    return max(REP_MS, seconds * 1e3) if isinstance(seconds, int | float) else REP_MS


def _callable_of(timer: Any) -> Callable[[], Any] | None:
    """The statement as a function that returns its last expression; None where it is no Python.

    What the setup makes are globals of it, as the timer's globals are. Setup and statement are one
    function otherwise: a statement that gives names a value beside a setup is left to the timer.
    """
    spec = timer._task_spec
    if getattr(timer, "_language", None) is None or timer._language.name != "PYTHON":
        return None
    statement = ast.parse(spec.stmt)
    stores = any(
        isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
        for node in ast.walk(statement)
    )
    if not statement.body or (spec.setup != "pass" and stores):
        return None
    made = ast.parse("def statement(): pass")
    (function,) = made.body
    assert isinstance(function, ast.FunctionDef)
    function.body = statement.body
    if isinstance(last := function.body[-1], ast.Expr):
        function.body[-1] = ast.Return(last.value)
    namespace = dict(timer._globals)
    exec(compile(spec.setup, "<setup>", "exec"), namespace)
    exec(compile(ast.fix_missing_locations(made), "<statement>", "exec"), namespace)
    found: Callable[[], Any] = namespace["statement"]
    return found
