"""The passes of `benchmarks.search` over the playbook. Pure but for what it is told to measure.

A pass begins with a version, tries every entry once with all of its variants, and goes on from each
gain at once. The first begins with the origin, each other one with the fastest version that an
entry gave and no pass has begun with. What was measured decides alone, so that a search over known
measurements goes the same way again, and on from their end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.backends import BACKENDS
from agent.playbook import ordered
from agent.playbook.base import Optimization
from agent.syntax import Source
from benchmarks.side_by_side import one_line
from benchmarks.spec import Spec

GAIN = 0.007
"""As a fraction of the latency. A pass does not go on from a smaller one: it may be noise."""
TUNING = frozenset({"autotune", "add-autotune", "widen-configs"})
"""Entries after which a kernel tunes itself, which takes longer than all that is timed here."""

Eval = dict[str, Any]
"""A version that was measured: `latency_ms`, None where it has none, and `steps`, the entries with
their parameters that lead to it from the origin, as they were when it first came up."""
Measure = Callable[[str, str, dict[str, Any]], None]
"""Of a key, a text and what is to be noted with it: puts an `Eval` into the search's `evals`."""

Entries = Callable[[str, KernelClass], Sequence[Optimization]]
"""Of a framework and a class of kernel: what to try, in this order."""


class OutOfTime(Exception):
    """Nothing more is measured."""


@dataclass(frozen=True)
class Version:
    """A version that can be timed."""

    latency_ms: float
    text: str
    steps: tuple[str, ...]

    @property
    def key(self) -> str:
        """Names it in `evals`."""
        return key_of(self.text)


class Search:
    """The search on one kernel."""

    def __init__(
        self,
        spec: Spec,
        sm: int,
        evals: dict[str, Eval],
        measure: Measure,
        entries: Entries = ordered,
    ) -> None:
        """Get ready.

        Args:
            spec: the kernel.
            sm: the GPU's compute capability times ten.
            evals: what is measured already; `measure` adds to it.
            measure: measures a version, or raises `OutOfTime`.
            entries: the playbook.
        """
        self._spec = spec
        self._hardware = Hardware(sm=sm)
        self._evals = evals
        self._measure = measure
        self._entries = entries
        self._pass = 0
        self.faults: dict[str, str] = {}
        """Entries that failed instead of saying that they do not apply, and how."""

    def run(self) -> None:
        """Make passes until there is nothing left to begin one with, or no time."""
        with suppress(OutOfTime):
            first = self._version(self._spec.kernel.read_text(), ())
            known = {first.key: first} if first else {}
            begun: set[str] = set()
            while waiting := [known[key] for key in known if key not in begun]:
                start = min(waiting, key=lambda version: version.latency_ms)
                begun.add(start.key)
                self._pass += 1
                for version in self._go_over(start):
                    known[version.key] = version

    def _go_over(self, present: Version) -> list[Version]:
        """One pass: the best version of every entry that applied."""
        found = []
        framework, file = self._spec.framework, self._spec.kernel.name
        kernel_class = BACKENDS[framework].classify(Source(present.text, file)).kernel_class
        for entry in self._entries(framework, kernel_class):
            if entry.name in TUNING or entry.opt_in:
                continue
            subject = Subject(Source(present.text, file), kernel_class, self._hardware)
            variants = [
                version
                for step, text in self._variants(entry, subject)
                if (version := self._version(text, (*present.steps, step)))
            ]
            if variants:
                best = min(variants, key=lambda version: version.latency_ms)
                found.append(best)
                if best.latency_ms < present.latency_ms * (1 - GAIN):
                    present = best
        return found

    def _variants(self, entry: Optimization, subject: Subject) -> list[tuple[str, str]]:
        """What an entry makes of a version: each step with its text."""
        made = []
        step = entry.title
        try:
            for params in entry.variants(subject):
                step = entry.describe(params)
                with suppress(NotApplicable):
                    made.append((step, entry.apply(subject, params)))
        except NotApplicable:
            pass
        except Exception as problem:  # an entry's fault ends the entry, not the search
            self.faults[step] = one_line(problem)
        return made

    def _version(self, text: str, steps: tuple[str, ...]) -> Version | None:
        """A version with its latency; None when it has none."""
        key = key_of(text)
        if key not in self._evals:
            self._measure(key, text, {"steps": list(steps), "pass": self._pass})
        measured = self._evals[key]
        if measured["latency_ms"] is None:
            return None
        return Version(measured["latency_ms"], text, tuple(measured["steps"]))


def key_of(text: str) -> str:
    """Names a version by what it says."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]
