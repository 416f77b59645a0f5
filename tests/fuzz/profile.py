"""How long is fuzzed: a little and always the same, or as long as somebody asks for.

`TILE_AGENT_FUZZ=50 python -m pytest tests/fuzz -m full` takes fifty times as many examples, at
random, and kernels of public projects where the corpus has been fetched.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from hypothesis import HealthCheck, Phase, settings

from benchmarks.corpus import cache

TIMES = int(os.environ.get("TILE_AGENT_FUZZ", "1"))
HANGS_AFTER_S = 60.0


def examples(count: int) -> settings:
    """So many, or as many times as many as asked for."""
    return settings(
        max_examples=count * TIMES,
        derandomize=TIMES == 1,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
    )


def folders() -> tuple[Path, ...]:
    """What holds more kernels, for those who have time."""
    return (cache(),) if TIMES > 1 and cache().is_dir() else ()


@contextmanager
def time_limit() -> Iterator[None]:
    """The block fails where it hangs."""

    def late(_number: int, _frame: FrameType | None) -> NoReturn:
        raise TimeoutError(f"no end after {HANGS_AFTER_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, HANGS_AFTER_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
