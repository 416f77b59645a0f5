"""What Triton's tuner does where nothing is timed: it tries all configs, and hardly times them.

`do_bench` takes an eighth of a second a config, for each value of a tuner's key. In correctness
tests the time of a config matters only as far as it chooses one, and each is one that the user may
get: twenty launches do. What is chosen so is forgotten before anything is timed.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from tile_agent_pytest.observed_tunings import TuningLog, file_of, of_tuner, write

MOST_LAUNCHES = 20
"""Of one config, after the first, which may load the code."""
MOST_MS = 2.0
"""Fewer where they would take longer."""


class RoughTuning:
    """Chooses roughly in passes that time nothing, and remembers what it has chosen so."""

    def __init__(self, folder: Path, log: TuningLog, timed: Callable[[], bool]) -> None:
        """Take what the choices depend on.

        Args:
            folder: where rough choices of one text of the kernel are kept for other workers.
            log: is told that a tuner is at work; what a rough one finds out is not noted.
            timed: whether what runs now is a pass that times.
        """
        self._folder, self._log, self._timed = folder, log, timed
        self._chosen: list[tuple[Any, Any]] = []

    def around(self, check_disk_cache: Callable[..., bool]) -> Callable[..., bool]:
        """Triton's look for a choice on disk; where it has none, tuning is rough if it may be."""

        def check(
            tuner: Any, tuning_key: Any, configs: list[Any], bench_fn: Callable[[], None]
        ) -> bool:
            if self._timed() or os.environ.get("TRITON_INTERPRET") == "1":
                return check_disk_cache(tuner, tuning_key, configs, bench_fn)
            with contextlib.suppress(_NotHeldError):
                return check_disk_cache(tuner, tuning_key, configs, _not_held)
            self._chosen.append((tuner, tuning_key))
            return self._choose(tuner, tuning_key, configs, bench_fn)

        return check

    def forget(self) -> None:
        """Have what was chosen roughly chosen anew when it is needed next."""
        while self._chosen:
            tuner, tuning_key = self._chosen.pop()
            tuner.cache.pop(tuning_key, None)

    def _choose(
        self, tuner: Any, tuning_key: Any, configs: list[Any], bench_fn: Callable[[], None]
    ) -> bool:
        file = file_of(self._folder, of_tuner(tuner, tuning_key, configs))
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            best = configs[json.loads(file.read_text())["index"]]
            tuner.configs_timings = {}
            tuner.cache[tuning_key] = best
            return True
        with self._log.tuning(), mock.patch.object(tuner, "do_bench", _briefly):
            bench_fn()
        best = tuner.cache[tuning_key]
        index = next(i for i, config in enumerate(configs) if config is best)
        write(file, {"index": index})
        return False


class _NotHeldError(Exception):
    """There is no choice on disk."""


def _not_held() -> None:
    raise _NotHeldError


def _briefly(kernel_call: Callable[[], Any], *, quantiles: Sequence[float]) -> list[float]:
    """As `do_bench` of what takes a few launches: milliseconds, the same for each quantile."""
    kernel_call()
    took_ms = _launched_ms(kernel_call, 1)
    times = int(min(MOST_LAUNCHES, MOST_MS / max(took_ms, MOST_MS / MOST_LAUNCHES)))
    if times > 1:
        took_ms = _launched_ms(kernel_call, times) / times
    return [took_ms] * len(quantiles)


def _launched_ms(kernel_call: Callable[[], Any], times: int) -> float:
    with _events() as (began, ended):
        began.record()
        for _ in range(times):
            kernel_call()
        ended.record()
    took_ms: float = began.elapsed_time(ended)
    return took_ms


@contextlib.contextmanager
def _events() -> Iterator[tuple[Any, Any]]:
    """Two events of the GPU, which has come to the second one when the block is over."""
    device: Any = importlib.import_module("triton.runtime").driver.active.get_device_interface()
    events = device.Event(enable_timing=True), device.Event(enable_timing=True)
    yield events
    device.synchronize()
