"""Kernels that tune themselves: a choice is made once, held for every later worker, and reported.

Each worker is a new process, and a tuner that ran in each would choose differently under noise:
two timings of the same code would be timings of different configs. It would also tune in every
process pair. So the first worker over a commit tunes, and the others are handed its choice.

Triton keeps its choices on disk itself where `TRITON_CACHE_AUTOTUNING` is set, but for configs with
a `pre_hook`, which it cannot write down; those are held here, as are cuTile's. Triton's `Autotuner`
and `cuda.tile.tune.exhaustive_search` are changed before any of the user's code is imported.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tile_agent_pytest.compiled_ahead import compile_configs_first
from tile_agent_pytest.compiled_ahead_cutile import (
    compile_search_first,
    ending_at_once,
    without_compilers_left,
)
from tile_agent_pytest.observed_tunings import TuningLog, file_of, of_tuner, write
from tile_agent_pytest.tuning_effort import NotNow, TuningInLess


@dataclass(frozen=True)
class HeldTuning:
    """What the tuners of a process have chosen, and how they choose."""

    log: TuningLog
    """Of what they did, and what that took."""
    in_less: TuningInLess
    chosen: dict[str, str] = field(default_factory=dict)
    """By cuTile, filled as it happens; for Triton's choices see `triton_choices`."""


def hold(folder: Path, running: Callable[[], str], first: Path | None = None) -> HeldTuning:
    """Wrap the tuners of cuTile and of Triton, where they are installed.

    Args:
        folder: where the choices of one commit are kept.
        running: the node id of the test that is running; a choice is held for a test.
        first: where those of the run's first commit are kept; the same where it is this one.
    """
    log = TuningLog(folder)
    held = HeldTuning(log, TuningInLess(folder, first or folder, log))
    tune = getattr(sys.modules.get("cuda.tile"), "tune", None)
    if tune is not None:
        tune.exhaustive_search = _held(tune, folder, running, held)
    tuner = _triton_tuner()
    if tuner is not None:
        with_hooks = _held_with_hooks(tuner.check_disk_cache, folder)
        tuner.check_disk_cache = held.in_less.around(log.watched(with_hooks))
        compile_configs_first(tuner)
    return held


def triton_choices(modules: Iterable[Any]) -> dict[str, str]:
    """What the autotuned Triton kernels of those modules use now, for each value of their keys."""
    return {
        f"{name} ({', '.join(map(str, key))})": str(config)
        for module in modules
        for name, tuner in autotuners(module)
        for key, config in tuner.cache.items()
    }


def autotuners(module: Any) -> Iterator[tuple[str, Any]]:
    """The autotuned Triton kernels of a module by name, below heuristics too."""
    for name, value in list(vars(module).items()):
        while type(value).__name__ in ("Autotuner", "Heuristics"):
            if type(value).__name__ == "Autotuner":
                yield name, value
            value = getattr(value, "fn", None)


def _triton_tuner() -> Any:
    """Triton's class, where it is imported and keeps choices on disk: since 3.3."""
    tuner = getattr(sys.modules.get("triton.runtime.autotuner"), "Autotuner", None)
    return tuner if hasattr(tuner, "check_disk_cache") else None


def _held_with_hooks(check_disk_cache: Callable[..., bool], folder: Path) -> Callable[..., bool]:
    """Triton's look for a choice on disk, which then finds those of configs with hooks too."""

    def check(
        tuner: Any, tuning_key: Any, configs: list[Any], bench_fn: Callable[[], None]
    ) -> bool:
        if not any(config.pre_hook for config in configs):
            return check_disk_cache(tuner, tuning_key, configs, bench_fn)
        file = file_of(folder, of_tuner(tuner, tuning_key, configs))
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            held = json.loads(file.read_text())
            best = configs[held["index"]]
            tuner.configs_timings = {best: held["timings_ms"]}
            tuner.cache[tuning_key] = best
            return True
        bench_fn()
        best = tuner.cache[tuning_key]
        index = next(i for i, config in enumerate(configs) if config is best)
        write(file, {"index": index, "timings_ms": tuner.configs_timings[best]})
        return False

    return check


def taken(
    search: Callable[..., Any], space: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[str]:
    """The names that a search's kernel takes: what was best for one whose blocks stay is not for
    one with a block for each tile. Empty where each config has a kernel of its own."""
    with contextlib.suppress(Exception):  # its arguments are the search's to refuse
        kernel = inspect.signature(search).bind(space, *args, **kwargs).arguments["kernel"]
        return [*inspect.signature(kernel._pyfunc).parameters]
    return []


def _held(
    tune: Any, folder: Path, running: Callable[[], str], held_tuning: HeldTuning
) -> Callable[..., Any]:
    search, calls, chosen = tune.exhaustive_search, dict[str, int](), held_tuning.chosen
    last: dict[tuple[str, ...], int] = {}
    """The configs of a search -> the place of what was chosen from them last."""

    def exhaustive_search(search_space: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
        space = list(search_space)
        asked = tuple(map(str, space))
        if held_tuning.in_less.is_settled:
            return untimed(space[last.get(asked, 0)])
        result = chosen_from(space, *args, **kwargs)
        last[asked] = asked.index(str(result.best.config))
        return result

    def untimed(config: Any) -> Any:
        best = tune.Measurement(config=config, mean_us=0.0, num_samples=0, error_margin_us=0.0)
        return tune.TuningResult(best=best, successes=[best], failures=[])

    def chosen_from(space: list[Any], *args: Any, **kwargs: Any) -> Any:
        test = running()
        calls[test] = calls.get(test, 0) + 1
        name = f"{test} #{calls[test]}"
        described = [name, *taken(search, space, args, kwargs), *map(str, space)]
        file = file_of(folder, described)
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            held = json.loads(file.read_text())
            best = tune.Measurement(config=space[held.pop("index")], **held)
            chosen[name] = str(best.config)
            return tune.TuningResult(best=best, successes=[best], failures=[])
        places = held_tuning.in_less.known_choices(described)
        known = [config for place, config in enumerate(space) if place in places]
        if held_tuning.in_less.is_put_off:
            if len(known) != 1:
                calls[test] -= 1
                raise NotNow
            chosen[name] = str(known[0])
            return untimed(known[0])
        if known:
            with (
                contextlib.suppress(Exception),
                held_tuning.log.tuning(),
                without_compilers_left(),
            ):
                result = search(known, *args, **kwargs)
                chosen[name] = str(result.best.config)
                return result
        with held_tuning.log.tuning():
            too_long = compile_search_first(search, space, *args, **kwargs)
            with ending_at_once(too_long), without_compilers_left():
                result = search(space, *args, **kwargs)
        best = result.best
        chosen[name] = str(best.config)
        index = next(i for i, config in enumerate(space) if config is best.config)
        write(
            file,
            {
                "index": index,
                "mean_us": best.mean_us,
                "num_samples": best.num_samples,
                "error_margin_us": best.error_margin_us,
            },
        )
        return result

    return exhaustive_search
