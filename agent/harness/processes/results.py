"""What a worker returned, as values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from agent.errors import WorkerDied
from tile_agent_pytest.wire import Message


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

    @property
    def headline(self) -> str:
        """The line that says why it failed: the last `E` line, else the last line at all."""
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        errors = [line[1:].strip() for line in lines if line.startswith("E ")]
        return (errors or lines or [self.outcome])[0 if errors else -1]


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

    def not_passed(self) -> tuple[TestResult, ...]:
        """The tests that failed or were skipped."""
        return tuple(test for test in self.tests if test.outcome != "passed")


@dataclass(frozen=True)
class Item:
    """A test as collected."""

    nodeid: str
    name: str
    fixtures: tuple[str, ...]


@dataclass(frozen=True)
class Collection:
    """What pytest found, and what it could not import."""

    items: tuple[Item, ...]
    errors: tuple[tuple[str, str], ...]
    """(node id, pytest's account)."""


def read_collection(message: Message) -> Collection:
    """From a worker's 'ready' message. Raises as `understood` expects."""
    return Collection(
        items=tuple(
            Item(str(item["nodeid"]), str(item["name"]), tuple(map(str, item["fixtures"])))
            for item in message["items"]
        ),
        errors=tuple((str(error["nodeid"]), str(error["text"])) for error in message["errors"]),
    )


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
            )
            for test in message["tests"]
        ),
        modules=tuple(map(str, message["modules"])),
        seconds=float(message["seconds"]),
        chosen={str(name): str(config) for name, config in message["chosen"].items()},
        notes=tuple(map(str, message["notes"])),
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
