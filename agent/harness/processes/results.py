"""What a worker returned, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
    """From a worker's 'ready' message."""
    return Collection(
        items=tuple(
            Item(item["nodeid"], item["name"], tuple(item["fixtures"])) for item in message["items"]
        ),
        errors=tuple((error["nodeid"], error["text"]) for error in message["errors"]),
    )


def read_pass(message: Message) -> Pass:
    """From a worker's 'ran' message."""
    return Pass(
        tests=tuple(
            TestResult(
                nodeid=test["nodeid"],
                outcome=test["outcome"],
                text=test["text"],
                exception=test["exception"],
                properties=tuple((name, value) for name, value in test["properties"]),
                stdout=test["stdout"],
                benchmark_s=tuple(test["benchmark_s"]),
                seconds=test["seconds"],
                launched=test["launched"],
            )
            for test in message["tests"]
        ),
        modules=tuple(message["modules"]),
        seconds=message["seconds"],
        chosen=message["chosen"],
        notes=tuple(message["notes"]),
    )
