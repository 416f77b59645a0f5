"""How `benchmarks.search` times a version: checked once, then briefly, one process at a time."""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.agreement import copied, error, right
from benchmarks.side_by_side import AT_LEAST, one_line
from benchmarks.spec import Launch, Spec, describe
from tile_agent_pytest.bench import OnGpu, count_for, open_sampler

WARMUP_MS = 15.0
BLOCKS = 3
BLOCK_MS = 12.0
METHOD = f"{OnGpu.label}; the median of {BLOCKS} blocks' medians, {BLOCK_MS:.0f} ms each"
PREPARE_S = 60.0
"""For a version to import, compile, tune itself and run once, and again to be timed."""


class Clock:
    """Times versions of a kernel on its first config."""

    def __init__(self, spec: Spec, lock: Path | None) -> None:
        """Make the inputs, and what is right for them.

        Args:
            spec: the kernel.
            lock: the file whose lock is held while something is timed.
        """
        reference = spec.reference()
        config = reference.configs[0]
        self.config = describe(config)
        self._inputs = reference.inputs(config)
        self._expected = right(reference, self._inputs)
        self._lock = lock

    def time(self, make: Callable[..., Launch]) -> dict[str, Any]:
        """The latency of a version in ms and how far it is off, or why it has none."""
        began = time.monotonic()
        try:
            latency_ms, off = self._timed(make)
            found: dict[str, Any] = {"latency_ms": latency_ms, "error": off}
        except Exception as problem:  # whatever stops one version, the others are timed
            found = {"latency_ms": None, "why": one_line(problem)}
        return found | {"took_s": round(time.monotonic() - began, 2)}

    def _timed(self, make: Callable[..., Launch]) -> tuple[float, float]:
        with watched(), contextlib.redirect_stdout(sys.stderr):  # tuners print their progress
            launch = make(*map(copied, self._inputs))
            off = error(launch(), self._expected)
        with locked(self._lock), watched():
            sampler, estimate_ms = open_sampler(launch, OnGpu.__name__)
            sampler.sample(count_for(WARMUP_MS, estimate_ms, at_least=2))
            count = count_for(BLOCK_MS, estimate_ms, at_least=AT_LEAST)
            blocks = [statistics.median(sampler.sample(count)) for _ in range(BLOCKS)]
            return statistics.median(blocks), off


def spoilt() -> bool:
    """Whether a launch has left an error in this process's CUDA context, where it stays."""
    import torch

    if torch.cuda.is_available():
        try:
            torch.cuda.synchronize()
        except Exception:  # of whatever class this version of PyTorch makes it
            return True
    return False


@contextlib.contextmanager
def watched(limit_s: float = PREPARE_S) -> Iterator[None]:
    """End this process, even out of a CUDA call, when what is inside takes too long."""
    faulthandler.dump_traceback_later(limit_s, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


@contextlib.contextmanager
def locked(file: Path | None) -> Iterator[None]:
    """Hold a file's lock, if there is one. A process that ends gives it back."""
    if file is None:
        yield
        return
    with file.open("a") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
