"""How well Triton's tuner chooses: as its author has it where that is timed, else in less time.

`do_bench` takes an eighth of a second a config, for each value of a tuner's key and once more for
each candidate. A correctness test only needs a choice that the user may get, too: a few launches of
each config do. A short look only ranks candidates: those few launches say which three configs the
tuner has to tell apart. What was chosen in less time is forgotten before anything else is timed.

How the configs ranked for the first text of a run, its origin, is kept: a candidate, whose configs
are the same, is compiled for the best of them alone where it is not timed as its author has it.
"""

from __future__ import annotations

import contextlib
import enum
import importlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from tile_agent_pytest.compiled_ahead import leave_uncompiled
from tile_agent_pytest.observed_tunings import TuningLog, file_of, of_tuner, write

MOST_LAUNCHES = 20
"""Of one config where it is timed roughly, after the first, which may load the code."""
MOST_MS = 2.0
"""Fewer where they would take longer."""
_RANKED = "ranked"
_FIGURES = 3
"""Triton asks for so many quantiles, and has as many where a config cannot be launched."""
BEST = 3
"""Configs that a short look has timed as the tuner's author has it; and those that a correctness
test of a candidate chooses from."""
LOOKED_AT = 8
"""Configs that a short look at a candidate chooses from."""


class NotNow(BaseException):
    """A search that times its configs was put off: others are at work beside it.

    It passes through whatever of the user's catches errors. Who made the call calls again later.
    """


class TuningEffort(enum.Enum):
    """What a pass takes for a choice that is not on disk."""

    WHOLE = "whole"
    """The tuner is left alone."""
    SHORT = "short"
    """The best of a rough choice are timed as the tuner's author has it."""
    ROUGH = "rough"
    """A few launches of each config."""
    NONE = "none"
    """Any config that can be launched: those of a short look are compiled, which chooses later."""

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> TuningEffort:
        """That of a pass that the parent orders."""
        if not (request.get("stepped") or request.get("timed") or request.get("as_timed")):
            return cls.ROUGH
        return cls.SHORT if request.get("short") else cls.WHOLE


class TuningInLess:
    """Chooses in less time where a pass allows it, and remembers what it has chosen so."""

    def __init__(self, folder: Path, first: Path, log: TuningLog) -> None:
        """Take what the choices depend on; until a pass begins they are rough.

        Args:
            folder: where such choices of one text of the kernel are kept for other workers.
            first: the same of the run's first text; that of others is only read.
            log: is told that a tuner is at work; what is found out here is not noted.
        """
        self._folder, self._first, self._log = folder, first, log
        self._effort = TuningEffort.ROUGH
        self._chosen: list[tuple[Any, Any]] = []
        self.is_settled = False
        """Whether nothing is timed, and what was chosen for another call is taken."""

    def begin(self, effort: TuningEffort) -> None:
        """A pass begins: what was chosen with another effort is chosen anew when it is needed."""
        if effort is self._effort:
            return
        self._effort = effort
        while self._chosen:
            tuner, tuning_key = self._chosen.pop()
            tuner.cache.pop(tuning_key, None)

    @contextlib.contextmanager
    def undecided(self) -> Iterator[None]:
        """In the block a tuner compiles its configs; what it then takes is no choice.

        For where others run beside it, so that no config can be timed.
        """
        effort, before = self._effort, len(self._chosen)
        self._effort = TuningEffort.NONE
        try:
            yield
        finally:
            self._effort = effort
            self._forget(before)

    @contextlib.contextmanager
    def settled(self) -> Iterator[None]:
        """In the block a tuner takes what it chose for another value of its key, without timing:
        which of its configs it has says nothing of whether results are right."""
        before, self.is_settled = len(self._chosen), True
        try:
            yield
        finally:
            self.is_settled = False
            self._forget(before)

    def _forget(self, before: int) -> None:
        for tuner, tuning_key in self._chosen[before:]:
            tuner.cache.pop(tuning_key, None)
        del self._chosen[before:]

    @property
    def is_put_off(self) -> bool:
        """Whether nothing can be timed now."""
        return self._effort is TuningEffort.NONE

    def known_choices(self, described: list[str]) -> list[int]:
        """Of cuTile's search, for a short look or a correctness test: the places of what it chose
        for any text of the run, so that a look is fair beside an incumbent that has its own, and a
        test need not compile all configs; empty where none is known, or they are not enough.

        Args:
            described: the search, as its choices are kept.
        """
        if self._effort is TuningEffort.WHOLE:
            return []
        found = set()
        for file in self._first.parent.glob(f"*/{file_of(self._first, described).name}"):
            with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
                found.add(int(json.loads(file.read_text())["index"]))
        return sorted(found)

    def around(self, check_disk_cache: Callable[..., bool]) -> Callable[..., bool]:
        """Triton's look for a choice on disk; where it has none, it may take less to choose."""

        def check(
            tuner: Any, tuning_key: Any, configs: list[Any], bench_fn: Callable[[], None]
        ) -> bool:
            if self.is_settled:
                known = [config for config in tuner.cache.values() if config in configs]
                tuner.cache[tuning_key] = [configs[0], *known][-1]
                tuner.configs_timings = {}
                self._chosen.append((tuner, tuning_key))
                return True
            interpreted = os.environ.get("TRITON_INTERPRET") == "1"
            if self._effort is TuningEffort.WHOLE or interpreted:
                was_held = check_disk_cache(tuner, tuning_key, configs, bench_fn)
                if not was_held:
                    self._rank(tuner, tuning_key, configs, _timed_ms(tuner, configs))
                return was_held
            with contextlib.suppress(_NotHeldError):
                return check_disk_cache(tuner, tuning_key, configs, _not_held)
            self._chosen.append((tuner, tuning_key))
            return self._choose(tuner, tuning_key, configs, bench_fn)

        return check

    def _choose(
        self, tuner: Any, tuning_key: Any, configs: list[Any], bench_fn: Callable[[], None]
    ) -> bool:
        is_none = self._effort is TuningEffort.NONE
        effort = TuningEffort.SHORT if is_none else self._effort
        file = file_of(self._folder / effort.value, of_tuner(tuner, tuning_key, configs))
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            best = configs[json.loads(file.read_text())["index"]]
            tuner.configs_timings = {}
            tuner.cache[tuning_key] = best
            return True
        if is_none:
            with self._log.tuning():
                self._roughly_among(tuner, tuning_key, configs, bench_fn)
            return False
        try:
            with self._log.tuning():
                self._tune(tuner, tuning_key, configs, bench_fn)
        except BaseException:
            tuner.cache.pop(tuning_key, None)
            raise
        best = tuner.cache[tuning_key]
        index = next(i for i, config in enumerate(configs) if config is best)
        write(file, {"index": index})
        return False

    def _tune(
        self, tuner: Any, tuning_key: Any, configs: list[Any], bench_fn: Callable[[], None]
    ) -> None:
        """Have the tuner time its configs, or the best of them, roughly; then perhaps once more."""
        among, took_ms = self._roughly_among(tuner, tuning_key, configs, bench_fn)
        if len(took_ms) != len(among):
            return
        ranked = dict(zip(among, took_ms, strict=True))  # of equal ones the last is known
        if len(among) == len(configs):
            self._rank(tuner, tuning_key, configs, [ranked[config] for config in configs])
        if self._effort is TuningEffort.SHORT:
            with only(tuner, sorted(ranked, key=ranked.__getitem__)[:BEST]):
                bench_fn()
            tuner.configs_timings = {}

    def _roughly_among(
        self, tuner: Any, tuning_key: Any, configs: list[Any], bench_fn: Callable[[], None]
    ) -> tuple[list[Any], list[float]]:
        """Which configs the tuner has chosen from by a few launches of each, and what one takes."""
        among = self._best_of_first(tuner, tuning_key, configs)
        took_ms = _roughly(tuner, among, bench_fn)
        if len(among) < len(configs) and math.isinf(min(took_ms, default=math.inf)):
            among = configs  # none of those can be launched now
            took_ms = _roughly(tuner, among, bench_fn)
        if len(among) < len(configs):
            tuner.configs_timings = {}  # there are none of the others, for anybody who reads them
        return among, took_ms

    def _best_of_first(self, tuner: Any, tuning_key: Any, configs: list[Any]) -> list[Any]:
        """What is enough to choose from: all where nobody knows how the first text's ranked."""
        most = BEST if self._effort is TuningEffort.ROUGH else LOOKED_AT
        return best_of_first(self._first, tuner, tuning_key, configs, most)

    def _rank(
        self, tuner: Any, tuning_key: Any, configs: list[Any], took_ms: Sequence[float]
    ) -> None:
        """Note which configs were best; only those of the first text count for others."""
        if self._folder == self._first and len(took_ms) == len(configs):
            ranked = sorted(range(len(configs)), key=took_ms.__getitem__)
            known = [place for place in ranked if math.isfinite(took_ms[place])]
            file = file_of(self._first / _RANKED, of_tuner(tuner, tuning_key, configs))
            write(file, {"ranked": known})


def best_of_first(
    first: Path, tuner: Any, tuning_key: Any, configs: list[Any], most: int
) -> list[Any]:
    """The configs that ranked best for a run's first text; all where nobody knows how they did.

    Args:
        first: where the choices of that text are kept.
        tuner: a tuner of Triton's.
        tuning_key: for which value of its key.
        configs: its own.
        most: how many are wanted.
    """
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        file = file_of(first / _RANKED, of_tuner(tuner, tuning_key, configs))
        best = {*json.loads(file.read_text())["ranked"][:most]}
        return [config for place, config in enumerate(configs) if place in best] or configs
    return configs


def _roughly(tuner: Any, among: Sequence[Any], bench_fn: Callable[[], None]) -> list[float]:
    """Have the tuner choose by a few launches of each.

    Returns:
        What a launch of each takes, in ms and in the order of `among`.
    """
    took_ms: list[float] = []

    def briefly(kernel_call: Callable[[], Any], *_: Any, **__: Any) -> list[float]:
        took_ms.append(math.inf)  # unless it comes to its end
        took_ms[-1] = _rough_ms(kernel_call)
        return [took_ms[-1]] * _FIGURES

    with only(tuner, among), mock.patch.object(tuner, "do_bench", briefly):
        bench_fn()
    return took_ms


@contextlib.contextmanager
def only(tuner: Any, among: Sequence[Any]) -> Iterator[None]:
    """In the block the tuner finds all other configs slower, without compiling them."""
    wanted, bench = {*among}, tuner._bench
    leave_uncompiled(tuner, wanted)

    def of_them(*args: Any, config: Any, **meta: Any) -> Any:
        return bench(*args, config=config, **meta) if config in wanted else _Slower()

    with mock.patch.object(tuner, "_bench", of_them):
        yield


def _timed_ms(tuner: Any, configs: list[Any]) -> list[float]:
    """What a tuner has just measured of each config, in ms; empty where it does not say."""
    with contextlib.suppress(AttributeError, LookupError, TypeError):
        timings = [tuner.configs_timings[config] for config in configs]
        return [float(each[0] if isinstance(each, list | tuple) else each) for each in timings]
    return []


class _Slower:
    """The timing of a config that is not timed, beside whatever a `do_bench` returns."""

    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return True


class _NotHeldError(Exception):
    """There is no choice on disk."""


def _not_held() -> None:
    raise _NotHeldError


def _rough_ms(kernel_call: Callable[[], Any]) -> float:
    """What a launch takes, by few of them."""
    kernel_call()
    took_ms = _launched_ms(kernel_call, 1)
    times = int(min(MOST_LAUNCHES, MOST_MS / max(took_ms, MOST_MS / MOST_LAUNCHES)))
    return _launched_ms(kernel_call, times) / times if times > 1 else took_ms


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
