"""What is timed by a function of the user's own choice, timed by ours instead.

Most benchmarks call `triton.testing.do_bench`, pytest-benchmark or a helper of their project. Its
adapter in `tile_agent_pytest.timing_adapters` asks here, at each call, whether the callable is to
be measured as one handed to `tile_bench` is, and makes of the samples what its caller expects.
Outside of passes over perf tests, and for whoever is no test, the functions do what they always
did.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tile_agent_pytest.bench import (
    REP_MS,
    WARMUP_MS,
    InTiming,
    OnGpu,
    Sampler,
    Timing,
    has_gpu,
    open_sampler,
    sampled,
)
from tile_agent_pytest.launch_detector import LaunchDetector
from tile_agent_pytest.sampling import thinned

SteppedGate = Callable[[str, Callable[[], Any], str], Timing]
"""Takes over a measurement: config, callable, and what it was to be timed with."""
Emit = Callable[[Timing, str, bool], None]
"""Records a timing, what it was to be timed with, and whether a kernel of the file is launched."""
_TUNERS = ("triton.runtime.", "torch._inductor.", "torch._dynamo.")
"""Modules that time configs of their own; those are no timings of a test."""


class TimingTakeover:
    """Who times what the tests time, call by call.

    Args:
        kernel_name: name of the kernel's file. A timing that it asks for is its own.
    """

    __slots__ = (  # so that no method of it can be hidden by an attribute
        "_counts",
        "_detector",
        "_emit",
        "_gate",
        "_in_timing",
        "_is_timing",
        "_kernel_name",
        "_labels",
        "known",
        "replacements",
        "watch",
    )

    def __init__(self, kernel_name: str) -> None:
        self._kernel_name = kernel_name
        self._detector = LaunchDetector(kernel_name)
        self._gate: SteppedGate | None = None
        self._emit: Emit | None = None
        self._in_timing: InTiming = contextlib.nullcontext
        self._labels: list[str] = []
        self._counts: dict[str, int] = {}
        self._is_timing = False
        self.replacements: list[tuple[Any, str]] = []
        """Owner and name of what was replaced."""
        self.known: list[tuple[Any, str]] = []
        """What a test calls to have something timed, and what people call that."""
        self.watch: Callable[[Any, str], None] = lambda *_: None
        """Told of each replacement that follows."""

    def replace(self, owner: Any, name: str, new: Any) -> None:
        """Put something in place of a function of a module, or of a class."""
        setattr(owner, name, new)
        self.replacements.append((owner, name))
        self.watch(owner, name)

    @contextlib.contextmanager
    def serving(self, gate: SteppedGate | None, emit: Emit, in_timing: InTiming) -> Iterator[None]:
        """Take over the timings of one test while the block lasts.

        Args:
            gate: where the parent orders the samples; without one they are taken at once.
            emit: keeps the timings that are taken at once.
            in_timing: the block that a timing takes place in, by its name.
        """
        self._gate, self._emit, self._in_timing, self._counts = gate, emit, in_timing, {}
        try:
            yield
        finally:
            self._gate = self._emit = None

    @contextlib.contextmanager
    def labelled(self, label: str) -> Iterator[None]:
        """What is timed in the block is that."""
        self._labels.append(label)
        try:
            yield
        finally:
            self._labels.pop()

    def serves(self) -> bool:
        """Whether the call that asks is a test's, and is to be timed here."""
        return (
            self._emit is not None
            and not self._is_timing
            and threading.get_ident() == threading.main_thread().ident
            and self._is_of_a_test()
        )

    def time(
        self,
        through: str,
        function: Callable[[], Any],
        *,
        label: str = "",
        warmup_ms: float = WARMUP_MS,
        rep_ms: float = REP_MS,
    ) -> Timing:
        """Measure a callable; ask `serves` before.

        Args:
            through: what it was to be timed with, as people call that.
            function: what to time.
            label: tells it from what else the test times.
            warmup_ms: how long to run it first, where nobody orders the samples.
            rep_ms: about how much time those may take together then.
        """
        config = self._config(" ".join([*self._labels, *([label] if label else [])]))
        self._is_timing = True
        try:
            with self._in_timing(config):
                if self._gate is not None:
                    return self._gate(config, function, through)
                with self._detector.watching():
                    function()
                launched = self._detector.seen
                if not launched:  # a reference: what it takes is nobody's but the test's
                    warmup_ms, rep_ms = 0.0, 0.0
                timing = _sampled(config, function, warmup_ms, rep_ms)
            if self._emit is not None:
                self._emit(timing, through, launched)
            return timing
        finally:
            self._is_timing = False

    def _config(self, label: str) -> str:
        """The same name in every process, whatever the candidate: by the order of the calls."""
        self._counts[label] = number = self._counts.get(label, 0) + 1
        if number == 1:
            return label or "forward"
        return f"{label} #{number}".strip()

    def _is_of_a_test(self) -> bool:
        """Neither the kernel's file nor a tuner is among those that wait for the answer."""
        frame = sys._getframe(2)
        while frame is not None:
            if Path(frame.f_code.co_filename).name == self._kernel_name:
                return False
            if str(frame.f_globals.get("__name__")).startswith(_TUNERS):
                return False
            frame = frame.f_back  # type: ignore[assignment]
        return True


def without_gradients(function: Callable[[], Any], tensors: Any) -> Callable[[], Any]:
    """A callable that resets gradients first, where tensors are named: it would add to them."""
    if tensors is None:
        return function

    def call() -> Any:
        for tensor in tensors:
            tensor.grad = None
        return function()

    return call


def _sampled(config: str, function: Callable[[], Any], warmup_ms: float, rep_ms: float) -> Timing:
    samples, label = sampled(*_opened(function), warmup_ms, rep_ms)
    return Timing(config, tuple(thinned(samples)), label)


def _opened(function: Callable[[], Any]) -> tuple[Sampler, float]:
    """How to time it: what waits for the GPU by itself cannot be captured."""
    try:
        return open_sampler(function)
    except RuntimeError:
        if not has_gpu():
            raise
        return open_sampler(function, OnGpu.__name__)
