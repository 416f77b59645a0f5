"""From a perf test's result to timing records, whatever the test times itself with. Pure.

Four sources are understood, in this order; the first that a test used is taken:

1. the `tile_bench` fixture of `tile_agent_pytest`,
2. TileGym's `record_property("benchmark", {framework: {"forward": {"median": ms, ...}}})`,
3. pytest-benchmark's `benchmark` fixture,
4. TileGym's printed line `Cutile: {'forward': {'mean': 3.79, ...}} ms`.
"""

from __future__ import annotations

import ast
import math
import re
import statistics
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from agent.errors import TileAgentError
from agent.events import Record
from agent.harness.processes.results import TestResult

_PRINTED = re.compile(r"^\s*([A-Za-z][\w .-]*): (\{.*\}) ms\s*$", re.MULTILINE)
_DIRECTIONS = ("forward", "backward", "full")


class RecordError(TileAgentError):
    """A perf test recorded nothing that can be used; the message says what and how to mend it."""


def read_records(tests: Sequence[TestResult], framework: str) -> tuple[Record, ...]:
    """The records of one pass, one a config.

    Args:
        tests: the perf tests of the pass, all passed.
        framework: 'cutile' or 'triton'; the rows that a TileGym test records for others are
            left out.

    Raises:
        RecordError: no records at all, or one that is zero, negative or not a number.
    """
    short = short_names([test.nodeid for test in tests])
    records: dict[str, Record] = {}
    for test in tests:
        for label, latency_ms, samples_ms, method in _read(test, framework):
            name = short[test.nodeid] if label == "forward" else f"{short[test.nodeid]} {label}"
            unique = numbered(name, records)
            for value in (latency_ms, *samples_ms):
                if not (math.isfinite(value) and value > 0):
                    raise RecordError(f"{test.nodeid} recorded {value} ms for {label}")
            records[unique] = Record(unique, latency_ms, method, samples_ms)
    if not records:
        raise RecordError(_nothing(tests, framework))
    return tuple(records.values())


Found = tuple[str, float, tuple[float, ...], str]
"""Label, latency in ms, samples in ms, method."""


def _read(test: TestResult, framework: str) -> list[Found]:
    """What it recorded; what it may have recorded instead cannot stop a run."""
    try:
        return _found(test, framework)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as problem:
        raise RecordError(
            f"{test.nodeid} recorded what cannot be read ({type(problem).__name__}: {problem})"
        ) from None


def _found(test: TestResult, framework: str) -> list[Found]:
    return (
        list(_from_tile_bench(test))
        or list(_from_tilegym(_benchmark_properties(test), framework))
        or list(_from_pytest_benchmark(test))
        or list(_from_tilegym(_printed(test.stdout), framework))
    )


def _from_tile_bench(test: TestResult) -> Iterator[Found]:
    for name, value in test.properties:
        if name == "tile_bench":
            samples = tuple(float(sample) for sample in value["samples_ms"])
            if not samples:
                raise RecordError(f"{test.nodeid} recorded no sample")
            yield str(value["config"]), statistics.median(samples), samples, str(value["method"])


def _from_pytest_benchmark(test: TestResult) -> Iterator[Found]:
    if test.benchmark_s:
        samples = tuple(1e3 * sample for sample in test.benchmark_s)
        yield "forward", statistics.median(samples), samples, "pytest-benchmark"


def _benchmark_properties(test: TestResult) -> Iterator[Mapping[str, Any]]:
    for name, value in test.properties:
        if name == "benchmark" and isinstance(value, Mapping):
            yield value


def _printed(stdout: str) -> Iterator[Mapping[str, Any]]:
    for name, text in _PRINTED.findall(stdout):
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            continue
        yield {name: value}


def _from_tilegym(rows: Iterator[Mapping[str, Any]], framework: str) -> Iterator[Found]:
    """The rows of this framework; its name is written 'cutile', 'CuTile' or 'Cutile'."""
    for row in rows:
        for name, directions in row.items():
            if name.casefold() != framework.casefold() or not isinstance(directions, Mapping):
                continue
            for direction, figures in directions.items():
                latency = _latency(figures)
                if direction in _DIRECTIONS and latency is not None:
                    samples = tuple(float(t) for t in figures.get("kernel_times") or ())
                    yield direction, *latency[:1], samples, f"TileGym, {latency[1]}"


def _latency(figures: object) -> tuple[float, str] | None:
    """The median where there is one: a mean follows every outlier."""
    if isinstance(figures, Mapping):
        for statistic in ("median", "mean"):
            if isinstance(value := figures.get(statistic), int | float):
                return float(value), statistic
    return None


def _nothing(tests: Sequence[TestResult], framework: str) -> str:
    others = {
        str(name)
        for test in tests
        for row in [*_benchmark_properties(test), *_printed(test.stdout)]
        for name in row
    }
    if others:
        return f"the perf tests recorded {', '.join(sorted(others))} but nothing for {framework}"
    return (
        f"the {len(tests)} perf tests recorded no timing; time the launch with the tile_bench "
        "fixture, pytest-benchmark's benchmark, or TileGym's record_property('benchmark', ...)"
    )


def short_names(nodeids: Sequence[str]) -> dict[str, str]:
    """Node id -> the part behind the file, where that is unique."""
    tails = {nodeid: nodeid.partition("::")[2] or nodeid for nodeid in nodeids}
    values = list(tails.values())
    return {nodeid: tail if values.count(tail) == 1 else nodeid for nodeid, tail in tails.items()}


def numbered(name: str, taken: Container[str]) -> str:
    """The name, with a number behind it where it is taken already."""
    number = 2
    unique = name
    while unique in taken:
        unique, number = f"{name} #{number}", number + 1
    return unique
