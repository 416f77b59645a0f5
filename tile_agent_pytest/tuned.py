"""Kernels that tune themselves: a choice is made once, held for every later worker, and reported.

Each worker is a new process, and a tuner that ran in each would choose differently under noise:
two timings of the same code would be timings of different configs. It would also tune in every
process pair. So the first worker over a commit tunes, and the others are handed its choice.

Triton keeps its choices on disk itself where `TRITON_CACHE_AUTOTUNING` is set. For cuTile,
`cuda.tile.tune.exhaustive_search` is wrapped here, before any of the user's code is imported.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def hold(folder: Path, running: Callable[[], str]) -> dict[str, str]:
    """Wrap cuTile's tuner, where cuTile is installed.

    Args:
        folder: where the choices of one commit are kept.
        running: the node id of the test that is running; a choice is held for a test.

    Returns:
        What has been chosen in this process, filled as it happens.
    """
    chosen: dict[str, str] = {}
    tune = getattr(sys.modules.get("cuda.tile"), "tune", None)
    if tune is not None:
        tune.exhaustive_search = _held(tune, folder, running, chosen)
    return chosen


def triton_choices(file_names: Iterable[str]) -> dict[str, str]:
    """What the autotuned Triton kernels of those files use now."""
    wanted = set(file_names)
    found = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or os.path.realpath(file) not in wanted:
            continue
        for name, value in list(vars(module).items()):
            if type(value).__name__ == "Autotuner":
                best = getattr(value, "best_config", None)
                if best is not None:
                    found[name] = str(best)
    return found


def _held(
    tune: Any, folder: Path, running: Callable[[], str], chosen: dict[str, str]
) -> Callable[..., Any]:
    search, calls = tune.exhaustive_search, dict[str, int]()

    def exhaustive_search(search_space: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
        space = list(search_space)
        test = running()
        calls[test] = calls.get(test, 0) + 1
        name = f"{test} #{calls[test]}"
        key = hashlib.sha256("\n".join([name, *map(str, space)]).encode()).hexdigest()
        file = folder / f"{key[:32]}.json"
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            held = json.loads(file.read_text())
            best = tune.Measurement(config=space[held.pop("index")], **held)
            chosen[name] = str(best.config)
            return tune.TuningResult(best=best, successes=[best], failures=[])
        result = search(space, *args, **kwargs)
        best = result.best
        chosen[name] = str(best.config)
        index = next(i for i, config in enumerate(space) if config is best.config)
        _write(
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


def _write(file: Path, value: dict[str, Any]) -> None:
    """Whole or not at all; a worker may be killed at any time, and a disk be full."""
    with contextlib.suppress(OSError):
        _replace(file, json.dumps(value))


def _replace(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{os.getpid()}")
    part.write_text(text)
    part.replace(file)
