"""Puts together what is known of the incumbent and asks for its diagnosis.

Nothing here fails a run: what cannot be found out is a line of the evidence that says so.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from agent.analysis.common.host_copies import host_copies
from agent.analysis.common.subject import NotApplicable
from agent.analysis.cutile.dialect import CUTILE
from agent.analysis.cutile.uses import Uses
from agent.analysis.triton.arguments import updated, written
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.tuners import why_tuned
from agent.analysis.triton.wrapped import decorated
from agent.backends import BACKENDS
from agent.causes import Diagnosis
from agent.diagnosis import Facts, diagnose, is_plain
from agent.diagnosis.view import view_of
from agent.environment import Gpu
from agent.evidence.counters import Counters
from agent.evidence.duplicates import CompiledCommit
from agent.evidence.model import NotCompiled, TensorArgument, TimedWork
from agent.evidence.peaks import peaks_of
from agent.evidence.roofline import least_times_of
from agent.harness.compiling.artifacts import Wanted
from agent.harness.measuring.records import numbered, short_names
from agent.harness.ncu import TIMEOUT_S, NoCounters, counters_of
from agent.harness.processes.worker_session import Checkout
from agent.harness.roof import roof_of
from agent.launches import ObservedLaunch, by_cost
from agent.least_time import LeastTimes
from agent.suggesting import looking
from agent.syntax import Source

UNPROFILED = -math.inf
"""When a profile must be over that nobody wants."""
LEAST_PROFILE_S = 10.0
"""Nsight Compute and the test that it profiles take longer than this to start."""
NOT_NEEDED = "no hardware counters: nobody chooses by them here; {} profiles the kernel"
NO_TIME = (
    "no hardware counters: calibration left no time to profile the slowest perf test; a longer "
    "--calibration-budget-s does"
)


@dataclass
class Diagnostician:
    """Diagnoses commits of one run."""

    wanted: Wanted
    """The backend, the interpreter, and what the compiler compiles for."""
    gpu: Gpu | None
    """That the latencies are of; None: there are none that count."""
    counters: bool = True
    """Profile the slowest perf test."""
    _counterless: str = field(default="", init=False)
    """Why there are no counters here: it is not tried again."""

    def diagnose(
        self,
        checkout: Checkout,
        levels_ms: Mapping[str, float],
        compiled: CompiledCommit | None = None,
        launches: Sequence[ObservedLaunch] = (),
        until: float = math.inf,
    ) -> Diagnosis:
        """What holds a commit back.

        Args:
            checkout: the commit on disk.
            levels_ms: config, as records name it, -> latency; may be empty.
            compiled: what the commit compiles to, where that is known.
            launches: what its perf tests were seen to launch.
            until: when the profile must be over, by the monotonic clock; or `UNPROFILED`.
        """
        source = _source(checkout, launches)
        classification = BACKENDS[self.wanted.backend].classify(source)
        works = _works(compiled, launches, levels_ms)
        timed = tuple(
            (work, levels_ms[config] if config and self.gpu else 0.0)
            for config, work in _timed(works, levels_ms)
        )
        facts = Facts(
            kernel_class=classification.kernel_class,
            flop_per_byte=classification.flop_per_byte,
            multiplying=multiplying(source),
            rewritten=rewritten_by(source),
            results=compiled.results if compiled else (),
            timed=timed,
            peaks=peaks_of(self.gpu.name) if self.gpu else None,
            gpu=self.gpu.name if self.gpu else "",
            copies=copies_around(source),
        )
        # a test that cannot be run without its GPU's work is none to run under a profiler
        asked = compiled is not None and compiled.work and not is_plain(facts)
        counters = self._counters(checkout, timed, until) if asked else NoCounters("")
        explain = looking("explain", checkout.kernel, self.wanted.pass_env, self.wanted.python)
        missing = [
            *_missing(compiled, timed, explain),
            *_several(facts, source, explain),
            *_unmatched(levels_ms, timed if self.gpu else ()),
        ]
        if isinstance(counters, NoCounters):
            missing += [counters.reason] if counters.reason else []
            return diagnose(replace(facts, missing=tuple(missing)))
        return diagnose(replace(facts, counters=counters, missing=tuple(missing)))

    def least_times(
        self,
        checkout: Checkout,
        levels_ms: Mapping[str, float],
        compiled: CompiledCommit | None = None,
        launches: Sequence[ObservedLaunch] = (),
    ) -> LeastTimes | None:
        """What the GPU needs for each config at least; None where nothing is known of it.

        What the card attains is measured where it has not been yet, which takes seconds.

        Args:
            checkout: a commit on disk.
            levels_ms: config, as records name it, -> latency.
            compiled: what the commit compiles to, where that is known.
            launches: what its perf tests were seen to launch.
        """
        if self.gpu is None:
            return None
        timed = _timed(_works(compiled, launches, levels_ms), levels_ms)
        known = [(config, work) for config, work in timed if config]
        if not known:
            return None
        roof = roof_of(self.gpu, self.wanted.python)
        peaks = peaks_of(self.gpu.name)
        source = _source(checkout, launches)
        return least_times_of(
            known, peaks, roof, multiplying(source), written_by(source), rewritten_by(source)
        )

    def _counters(
        self,
        checkout: Checkout,
        timed: Sequence[tuple[TimedWork, float]],
        until: float,
    ) -> tuple[Counters, ...] | NoCounters:
        """Of the perf test that takes longest."""
        if self._counterless:
            return NoCounters(self._counterless)
        if not self.counters or self.gpu is None or not timed:
            return NoCounters("")
        if until == UNPROFILED:
            profile = looking("diagnose", checkout.kernel, self.wanted.pass_env, self.wanted.python)
            return NoCounters(NOT_NEEDED.format(profile))
        left_s = until - time.monotonic()
        if left_s < LEAST_PROFILE_S:
            return NoCounters(NO_TIME)
        work, _ = max(timed, key=lambda pair: pair[1])
        most_s = min(left_s, TIMEOUT_S)
        found = counters_of(checkout, work.test, work.kernels, self.wanted, most_s)
        if isinstance(found, NoCounters):
            self._counterless = found.reason
        return found


def _source(checkout: Checkout, launches: Iterable[ObservedLaunch]) -> Source:
    text = (checkout.root / checkout.kernel).read_text(encoding="utf-8")
    return decorated(Source(text, timed=by_cost(launches, {})))


def multiplying(source: Source) -> frozenset[str]:
    """Names of the kernels whose source asks for matrix products."""
    return frozenset(
        kernel.name
        for dialect in (CUTILE, TRITON)
        for kernel in dialect.kernels(source)
        if dialect.has_dot(source, kernel)
    )


def copies_around(source: Source) -> tuple[tuple[int, str], ...]:
    """Line and call of each copy that the functions make which launch its kernels."""
    kernels = [*CUTILE.kernels(source), *TRITON.kernels(source)]
    return host_copies(source, kernels)


def written_by(source: Source) -> dict[str, frozenset[str]]:
    """Kernel -> the parameters that it stores to, where its source shows all of them."""
    found = {kernel.name: written(source, kernel) for kernel in TRITON.kernels(source)}
    for kernel in CUTILE.kernels(source):
        uses = Uses(source, kernel)
        found[kernel.name] = None if uses.stores_elsewhere else frozenset(uses.stored)
    return {name: stored for name, stored in found.items() if stored}


def rewritten_by(source: Source) -> dict[str, frozenset[str]]:
    """Kernel -> the parameters that it surely reads and writes, where its source shows all."""
    found = {}
    for kernel in TRITON.kernels(source):
        with suppress(NotApplicable):
            found[kernel.name] = updated(source, kernel)
    for kernel in CUTILE.kernels(source):
        uses = Uses(source, kernel)
        if not uses.stores_elsewhere:
            found[kernel.name] = frozenset(uses.loaded & uses.stored)
    return {name: names for name, names in found.items() if names}


def _works(
    compiled: CompiledCommit | None,
    launches: Sequence[ObservedLaunch],
    levels_ms: Mapping[str, float],
) -> tuple[TimedWork, ...]:
    """What the timings cover, as the compiling process saw it, with the grids that were launched.

    That process has no GPU: a grid that the host takes from the number of multiprocessors is
    another one there. Its tensors stay: it knows which of them lie in the same place.
    """
    seen = {(work.test, work.config): work for work in observed_work(launches, levels_ms)}
    told = compiled.work if compiled else ()
    times = Counter((work.test, work.config) for work in told)
    # of several timings of one name it is not known which is which
    once = {key: work for key, work in seen.items() if times[key] == 1}
    other = {work.test for work in told}
    return (
        *(_launched(work, once.get((work.test, work.config))) for work in told),
        *(work for work in seen.values() if work.test not in other),
    )


def _launched(work: TimedWork, seen: TimedWork | None) -> TimedWork:
    """The same with what was seen to be launched, as far as that goes."""
    if seen is None:
        return work
    others = (launch for launch in work.launches if launch[0] not in seen.kernels)
    return replace(work, launches=(*seen.launches, *others))


def observed_work(
    launches: Sequence[ObservedLaunch], levels_ms: Mapping[str, float]
) -> tuple[TimedWork, ...]:
    """What the timings cover, by what tests were seen to launch.

    A launch of which it is not known what times it is a test's that times one thing alone, and
    of the first such that was seen to make it; one of a test of several may be any of theirs.
    """
    timings = dict.fromkeys(timing for launch in launches for timing in launch.timings)
    known = {test for test, _ in timings}
    found = [
        _work(test, config, [each for each in launches if (test, config) in each.timings])
        for test, config in timings
    ]
    for test in dict.fromkeys(launch.test for launch in launches if launch.test not in known):
        names = (test, test.partition("::")[2])
        more = tuple(f"{name} " for name in names)
        if sum(level in names or level.startswith(more) for level in levels_ms) == 1:
            found.append(_work(test, "forward", [each for each in launches if each.test == test]))
    return tuple(found)


def _work(test: str, config: str, launches: Sequence[ObservedLaunch]) -> TimedWork:
    tensors = {
        (name, tensor.dtype, tensor.shape): tensor.size_bytes
        for launch in launches
        for name, tensor in launch.tensors.items()
    }
    return TimedWork(
        test,
        config,
        tuple(dict.fromkeys((launch.kernel, launch.grid) for launch in launches)),
        tuple(TensorArgument(*key, size) for key, size in tensors.items()),
    )


def _timed(
    works: Sequence[TimedWork], levels_ms: Mapping[str, float]
) -> tuple[tuple[str, TimedWork], ...]:
    """Each timing's work with the name of its record, which is empty where there is none."""
    short = short_names(list(dict.fromkeys(work.test for work in works)))
    taken: set[str] = set()
    found = []
    for work in works:
        behind = "" if work.config == "forward" else f" {work.config}"
        name = numbered(f"{short[work.test]}{behind}", taken)
        taken.add(name)
        # Which tests a pass holds decides whether a record's name begins with its file.
        whole = f"{work.test}{name.removeprefix(short[work.test])}"
        tail = whole.partition("::")[2]
        found.append((next((n for n in (name, whole, tail) if n in levels_ms), ""), work))
    return tuple(found)


def _missing(
    compiled: CompiledCommit | None, timed: Sequence[object], explain: str
) -> Iterator[str]:
    if compiled is None:
        yield f"what the kernel compiles to is not known here; {explain} tells"
        return
    for result in compiled.results:
        if isinstance(result, NotCompiled):
            yield f"{result.launch} for {result.target} is not compiled: {result.reason}"
    if not timed:
        yield "no perf test was seen to launch the kernel"


def _several(facts: Facts, source: Source, explain: str) -> Iterator[str]:
    """Of a kernel that compiles to one thing alone its occupancy is told."""
    tuned = {k.name for k in TRITON.kernels(source) if why_tuned(source, k, "what it is given")}
    tuned |= {k.name for k in CUTILE.kernels(source) if CUTILE.tuned(source, k)}
    for name, artifacts in view_of(facts).kernels.items():
        if len(artifacts) < 2:
            continue
        why = "for the shapes, types and settings of its tests: none stands for all of them"
        if name in tuned:
            why = "as a kernel that tunes itself is, and which of them runs is not known here"
        variants = f"{name} is compiled in {len(artifacts)} variants"
        yield f"{variants}, {why}; {explain} shows them"


def _unmatched(
    levels_ms: Mapping[str, float], timed: Sequence[tuple[TimedWork, float]]
) -> Iterator[str]:
    if levels_ms and timed and not any(latency_ms for _, latency_ms in timed):
        yield f"no launch was seen that belongs to {next(iter(levels_ms))}"
