"""What a worker returned, as values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from agent.errors import WorkerDied
from agent.harness.processes.collection_errors import headline, missing_module
from agent.launches import ObservedLaunch, ObservedTensor, ObservedTuning, TunedConfig
from tile_agent_pytest.observed_tunings import MOST_CONFIGS
from tile_agent_pytest.wire import Message

MOST_LAUNCHES = 128
"""Of one pass, that are kept."""
MAX_NAME = 200
"""Characters of a kernel, a parameter or a test in them."""


@dataclass(frozen=True)
class TestResult:
    """One test of one pass."""

    __test__ = False

    nodeid: str
    outcome: str
    """'passed', 'failed' or 'skipped'; setup, call and teardown folded together."""
    text: str
    """pytest's account of a failure or skip."""
    exception: str
    """Type name of the exception behind a failure; 'AssertionError' is a wrong result."""
    properties: tuple[tuple[str, Any], ...]
    stdout: str
    benchmark_s: tuple[float, ...]
    """pytest-benchmark's samples, in seconds."""
    seconds: float = 0.0
    """Wall time of the test with its setup and teardown."""
    launched: bool = False
    """Whether it launched a kernel of the file, where that was looked at."""
    tuned_s: float = 0.0
    """Of its wall time, what tuners took: a later pass is handed their choices."""

    @property
    def missing_module(self) -> str:
        """The module for want of which it failed; empty where that is not why."""
        failed = self.outcome == "failed" and self.exception == ModuleNotFoundError.__name__
        return missing_module(self.text) if failed else ""

    @property
    def headline(self) -> str:
        """The line that says why it failed."""
        return headline(self.text) or self.outcome


@dataclass(frozen=True)
class TestedCall:
    """A function of the kernel's file that a test called, and with which shapes."""

    __test__ = False

    index: int = field(compare=False)
    """Its place among those that the worker keeps."""
    nodeid: str
    name: str
    shapes: Mapping[str, tuple[int, ...]]
    """Path of a tensor among the arguments -> its shape."""


@dataclass(frozen=True)
class Pass:
    """One pass over some tests in one worker."""

    tests: tuple[TestResult, ...]
    modules: tuple[str, ...]
    """Files of the imported modules that bear the kernel's file name."""
    seconds: float
    chosen: Mapping[str, str] = field(default_factory=dict)
    """What kernels that tune themselves run with: kernel or test -> config."""
    notes: tuple[str, ...] = ()
    """Kernels that differ from themselves, where their launches were repeated."""
    replaced: tuple[str, ...] = ()
    """What judges, by dotted names, that stands for something else by now."""
    programs: tuple[str, ...] = ()
    """Audit events by which the kernel's file started processes."""
    launches: tuple[ObservedLaunch, ...] = ()
    """What kernels of the file were launched with, where that was asked for."""
    calls: tuple[TestedCall, ...] = ()
    """What the worker keeps of the tests' calls, where it was asked to."""

    def joined(self, other: Pass) -> Pass:
        """With what another says; its calls are left out, since they are another worker's."""
        return Pass(
            tests=self.tests + other.tests,
            modules=tuple(dict.fromkeys(self.modules + other.modules)),
            seconds=self.seconds + other.seconds,
            chosen={**self.chosen, **other.chosen},
            notes=tuple(dict.fromkeys(self.notes + other.notes)),
            replaced=tuple(dict.fromkeys(self.replaced + other.replaced)),
            programs=tuple(dict.fromkeys(self.programs + other.programs)),
            launches=self.launches + other.launches,
            calls=self.calls,
        )

    def in_order(self, nodeids: Sequence[str]) -> Pass:
        """With its tests in the order of these; what nobody asked for comes last."""
        place = {nodeid: index for index, nodeid in enumerate(nodeids)}
        tests = sorted(self.tests, key=lambda test: place.get(test.nodeid, len(place)))
        return replace(self, tests=tuple(tests))

    def not_passed(self) -> tuple[TestResult, ...]:
        """The tests that failed or were skipped."""
        return tuple(test for test in self.tests if test.outcome != "passed")

    def skipped(self, is_own: Callable[[str], bool]) -> tuple[str, ...]:
        """The node ids of those that skipped themselves, and of those that failed for a module that
        is not installed; none where nothing is left then.

        Args:
            is_own: whether a module is one of the checkout's: that is missing for another reason.
        """
        lacking = {t.nodeid for t in self.tests if (m := t.missing_module) and not is_own(m)}
        unable = [t.nodeid for t in self.tests if t.outcome == "skipped" or t.nodeid in lacking]
        return () if lacking and len(unable) == len(self.tests) else tuple(unable)

    def missing_modules(self) -> tuple[str, ...]:
        """What tests failed for, for want of it."""
        return tuple(
            dict.fromkeys(test.missing_module for test in self.tests if test.missing_module)
        )


@dataclass(frozen=True)
class Stop:
    """Where a stepped run waits: where a test has something timed."""

    nodeid: str
    config: str
    through: str = ""
    """What the test asked for the time; empty for `tile_bench`, which times kernels only."""


@dataclass(frozen=True)
class PreparedTiming:
    """How a stopped test's callable will be timed."""

    method: str
    """Name of the sampler, for the other arm to use the same; empty where nothing is sampled,
    because the test times by itself and this is no timing of the kernel."""
    label: str
    estimate_ms: float
    launched: bool
    """Whether the callable launched a kernel of the file."""
    launches_per_call: int = 1
    """How many, in its second call."""
    skipped_launches: int = 0
    """How many fewer the calls made since then."""
    calls: bool = True
    """Whether a sample calls it; a graph is replayed."""
    children: int = 0
    """Processes of the worker's own that run meanwhile."""
    processor: int | None = None
    """The one it stays on while it is timed; None on a GPU, and where it cannot be kept there."""


@dataclass(frozen=True)
class TimedBlock:
    """Samples that were taken one behind the other."""

    samples_ms: tuple[float, ...]
    launches: int
    """Of kernels of the file; none where a graph is replayed."""
    children: int = 0
    """Processes of the worker's own at the end."""


@dataclass(frozen=True)
class ExaminedCall:
    """What one call did, and where its results lie."""

    results: tuple[Message, ...]
    """Each by `tile_agent_pytest.examining.exchange`; until the worker's next call."""
    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Path of a tensor -> digest of the bytes that the call was given."""
    changed: frozenset[str] = frozenset()
    """Inputs that it changed although the first call of all did not."""
    written: frozenset[str] = frozenset()
    """Inputs that the first call changed: outputs, or worked on in place."""
    launches: tuple[str, ...] = ()
    streams: int = 1
    """Streams of the GPU that it launched on, with the one it was called on."""
    launching_threads: int = 1
    """Threads that launched, with the one it was called in."""
    operators: Mapping[str, int] = field(default_factory=dict)
    aliases: frozenset[tuple[str, str]] = frozenset()
    """(result, what shares its memory)."""
    reused: frozenset[str] = frozenset()
    """Results of the call before that are not what they were."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Result -> name of its class."""
    threads: int = 1
    """Those that run Python code when it is over."""
    written_bytes: int = 0
    """What it wrote at the least: results in memory of their own, and arguments whole."""
    problem: str = ""
    """The exception that ended a call without launches."""
    lacks_memory: bool = False
    """Copies of the inputs do not fit beside the test: nobody looked."""

    @property
    def names(self) -> tuple[str, ...]:
        """Those of the results, with type and shape."""
        return tuple(f"{r['name']} {r['dtype']}{r['shape']}" for r in self.results)


def read_pass(message: Message) -> Pass:
    """From a worker's 'ran' message. Raises as `understood` expects."""
    return Pass(
        tests=tuple(
            TestResult(
                nodeid=str(test["nodeid"]),
                outcome=str(test["outcome"]),
                text=str(test["text"]),
                exception=str(test["exception"]),
                properties=tuple((str(name), value) for name, value in test["properties"]),
                stdout=str(test["stdout"]),
                benchmark_s=tuple(map(float, test["benchmark_s"])),
                seconds=float(test["seconds"]),
                launched=bool(test["launched"]),
                tuned_s=float(test["tuned_s"]),
            )
            for test in message["tests"]
        ),
        modules=tuple(map(str, message["modules"])),
        seconds=float(message["seconds"]),
        chosen={str(name): str(config) for name, config in message["chosen"].items()},
        notes=tuple(map(str, message["notes"])),
        replaced=tuple(map(str, message["replaced"])),
        programs=tuple(map(str, message["programs"])),
        launches=tuple(map(read_launch, message["launches"][:MOST_LAUNCHES])),
        calls=tuple(
            TestedCall(
                index,
                str(call["nodeid"]),
                str(call["name"]),
                {str(path): tuple(map(int, shape)) for path, shape in call["shapes"].items()},
            )
            for index, call in enumerate(message["calls"])
        ),
    )


def read_launch(described: Mapping[str, Any]) -> ObservedLaunch:
    """What a worker says of one launch. Raises as `understood` expects."""
    return ObservedLaunch(
        kernel=_name(described["kernel"]),
        test=_name(described["test"]),
        grid=tuple(map(int, described["grid"])),
        integers=_integers(described["integers"]),
        tensors={
            _name(name): ObservedTensor(
                dtype=_name(tensor["dtype"]),
                shape=tuple(map(int, tensor["shape"])),
                strides=tuple(map(int, tensor["strides"])),
                aligned=bool(tensor["aligned"]),
            )
            for name, tensor in described["tensors"].items()
        },
        options=_integers(described["options"]),
        tuning=_tuning(tuning) if (tuning := described.get("tuning")) is not None else None,
        timings=tuple(
            (_name(test), _name(config))
            for test, config in described.get("timings", [])[:MOST_LAUNCHES]
        ),
    )


def _tuning(described: Mapping[str, Any]) -> ObservedTuning:
    tried, took_s = int(described["tried"]), float(described["took_s"])
    if tried < 1 or not (math.isfinite(took_s) and took_s >= 0):
        raise ValueError(f"a tuning of {tried} configs in {took_s} s")
    return ObservedTuning(
        key={_name(name): _name(value) for name, value in described["key"].items()},
        tried=tried,
        took_s=round(took_s, 3),
        configs=tuple(map(_config, described["configs"][:MOST_CONFIGS])),
    )


def _config(described: Mapping[str, Any]) -> TunedConfig:
    told = described["latency_ms"]
    return TunedConfig(
        constants=_integers(described["constants"]),
        options=_integers(described["options"]),
        latency_ms=None if told is None else read_latencies([told], 1)[0],
    )


def _integers(values: Mapping[Any, Any]) -> dict[str, int]:
    return {_name(name): int(value) for name, value in values.items()}


def _name(told: Any) -> str:
    """A worker may call a thing by a name without end."""
    return str(told)[:MAX_NAME]


def read_call(message: Mapping[str, Any]) -> ExaminedCall:
    """What a worker says of one call. Raises as `understood` expects."""
    results = tuple(
        {str(key): value for key, value in result.items()} for result in message["results"]
    )
    for result in results:
        result["shape"] = [int(n) for n in result["shape"]]
        result["name"], result["dtype"] = str(result["name"]), str(result["dtype"])
    if "inputs" not in message:
        return ExaminedCall(results, lacks_memory=bool(message.get("lacks_memory")))
    return ExaminedCall(
        results=results,
        inputs={str(n): tuple(map(int, d)) for n, d in message["inputs"].items()},
        changed=frozenset(map(str, message["changed"])),
        written=frozenset(map(str, message["written"])),
        launches=tuple(map(str, message["launches"])),
        streams=int(message["streams"]),
        launching_threads=int(message["launching_threads"]),
        operators={str(name): int(count) for name, count in message["operators"].items()},
        aliases=frozenset((str(one), str(other)) for one, other in message["aliases"]),
        reused=frozenset(map(str, message["reused"])),
        kinds={str(name): str(kind) for name, kind in message["kinds"].items()},
        threads=int(message["threads"]),
        written_bytes=int(message["written_bytes"]),
        problem=str(message["problem"]),
    )


def read_latencies(latencies_ms: Any, count: int) -> tuple[float, ...]:
    """So many latencies, each above zero. Raises as `understood` expects."""
    found = tuple(map(float, latencies_ms))
    if len(found) != count:
        raise ValueError(f"{len(found)} latencies where {count} were to be taken")
    for latency_ms in found:
        if not (math.isfinite(latency_ms) and latency_ms > 0):
            raise ValueError(f"a latency of {latency_ms} ms")
    return found


@contextmanager
def understood() -> Iterator[None]:
    """What a worker says may be a candidate's word: what makes no sense is a fault of its own.

    Raises:
        WorkerDied: the block could not make sense of a message.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as problem:
        what = f"no {problem}" if isinstance(problem, KeyError) else str(problem)
        raise WorkerDied(f"the worker's answer makes no sense: {what}") from None
