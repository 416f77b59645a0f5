"""What Triton's tuner did before it chose: configs, their latencies, how long all of it took."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tile_agent_pytest.launch_functions import kernel_name

Message = dict[str, Any]

MOST_CONFIGS = 256
"""Of one tuning that are told one by one."""
MAX_VALUE = 100
"""Characters of a value of a key."""
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


class TuningLog:
    """Remembers what each tuning of Triton's did, this process's own or that of an earlier one."""

    def __init__(self, folder: Path) -> None:
        """Take the folder where the choices of one commit are kept."""
        self._folder = folder
        self._found: dict[tuple[str, str], tuple[Any, dict[Any, Message]]] = {}
        self.is_tuning = False
        """Whether a tuner times configs right now: its launches are none of a test's own."""
        self._spent_s = 0.0

    def watched(self, check_disk_cache: Callable[..., bool]) -> Callable[..., bool]:
        """Triton's look for a choice on disk, which tunes where there is none, with a note of it.

        What it did is written down too: a later process is handed the choice alone.
        """

        def check(
            tuner: Any, tuning_key: Any, configs: list[Any], bench_fn: Callable[[], None]
        ) -> bool:
            took_s: list[float] = []

            def tune() -> None:
                begin = time.perf_counter()
                with self.tuning():
                    bench_fn()
                took_s.append(time.perf_counter() - begin)

            was_held = check_disk_cache(tuner, tuning_key, configs, tune)
            with contextlib.suppress(Exception):  # a Triton that keeps its timings elsewhere
                file = file_of(self._folder, ["tuning", *of_tuner(tuner, tuning_key, configs)])
                if took_s:
                    write(file, _described(tuner, configs, sum(took_s)))
                _, by_key = self._found.setdefault(_name(tuner.base_fn), (tuner, {}))
                by_key[tuning_key] = json.loads(file.read_text())
            return was_held

        return check

    @contextlib.contextmanager
    def tuning(self) -> Iterator[None]:
        """While the block lasts a tuner times configs."""
        begin, self.is_tuning = time.perf_counter(), True
        try:
            yield
        finally:
            self.is_tuning = False
            self._spent_s += time.perf_counter() - begin

    def take_s(self) -> float:
        """What tuning took since this was asked last, in seconds."""
        spent_s, self._spent_s = self._spent_s, 0.0
        return spent_s

    def before(self, function: Any, arguments: Mapping[str, Any]) -> Message | None:
        """What chose the config that a kernel's function is launched with, if a tuner did."""
        tuner, by_key = self._found.get(_name(function), (None, {}))
        if tuner is None:
            return None
        given = {name: arguments[name] for name in tuner.keys if name in arguments}
        dtypes = sorted(str(v.dtype) for v in arguments.values() if hasattr(v, "dtype"))
        for key, tuning in by_key.items():
            values, rest = list(key[: len(given)]), sorted(map(str, key[len(given) :]))
            with contextlib.suppress(Exception):  # a value that cannot be compared, as a tensor
                if (values, rest) == (list(given.values()), dtypes):
                    shown = {name: str(value)[:MAX_VALUE] for name, value in given.items()}
                    return tuning | {"key": shown}
        return None


def _name(function: Any) -> tuple[str, str]:
    """Triton's interpreter runs a copy of a kernel's function."""
    return function.__module__, kernel_name(function)


def of_tuner(tuner: Any, tuning_key: Any, configs: list[Any]) -> list[str]:
    """What tells one tuning of a commit from another."""
    kernel = f"{tuner.base_fn.__module__}.{tuner.base_fn.__qualname__}"
    return [kernel, str(tuning_key), *map(str, configs)]


def _described(tuner: Any, configs: list[Any], took_s: float) -> Message:
    told = [_config(config, tuner.configs_timings.get(config)) for config in configs]
    whole = len(told) <= MOST_CONFIGS and all(told)
    return {
        "tried": len(configs),
        "took_s": took_s,
        "configs": told if whole else [],
    }


def _config(config: Any, timing: Any) -> Message | None:
    """One config; None where it gives the kernel what is no integer."""
    if not all(isinstance(value, int) for value in config.kwargs.values()):
        return None
    median_ms = float(timing[0] if isinstance(timing, list | tuple) else timing or 0)
    options = {name: getattr(config, name, None) for name in _OPTIONS}
    return {
        "constants": {name: int(value) for name, value in config.kwargs.items()},
        "options": {name: int(value) for name, value in options.items() if value is not None},
        "latency_ms": median_ms if 0 < median_ms < math.inf else None,
    }


def file_of(folder: Path, parts: list[str]) -> Path:
    """Where what these texts tell from others is kept."""
    return folder / f"{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:32]}.json"


def write(file: Path, value: Message) -> None:
    """Whole or not at all; a worker may be killed at any time, and a disk be full."""
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(value))
        part.replace(file)
