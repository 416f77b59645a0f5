"""From a perf test's result to timing records, whatever the test times itself with. Pure.

Four sources are understood, in this order; the first that a test used is taken:

1. the property `tile_bench`: of the fixture, and of what tests time through functions that are
   known (`tile_agent_pytest.timing_adapters`),
2. TileGym's `record_property("benchmark", {framework: {"forward": {"median": ms, ...}}})`,
3. pytest-benchmark's `benchmark` fixture,
4. TileGym's printed line `Cutile: {'forward': {'mean': 3.79, ...}} ms`.
"""

from __future__ import annotations

import ast
import math
import re
import reprlib
import statistics
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from agent.errors import TileAgentError
from agent.events import Record
from agent.harness.processes.results import Stop, TestResult
from tile_agent_pytest.plugin import ASIDE, PROPERTY

_PRINTED = re.compile(r"^\s*([A-Za-z][\w .-]*): (\{.*\}) ms\s*$", re.MULTILINE)
_REPR = reprlib.Repr()
_REPR.maxother = _REPR.maxstring = 60
_DIRECTIONS = ("forward", "backward", "full")


class RecordError(TileAgentError):
    """A perf test recorded nothing that can be used; the message says what and how to mend it."""


def read_records(
    tests: Sequence[TestResult], framework: str, names: Mapping[str, str] | None = None
) -> tuple[Record, ...]:
    """The records of one pass, one a config.

    Args:
        tests: the perf tests of the pass, all passed.
        framework: 'cutile' or 'triton'; the rows that a TileGym test records for others are
            left out.
        names: node id -> what its configs are called, where there are other tests besides.

    Raises:
        RecordError: no records at all, or one that holds no latency; its text is a line that names
            test, field and value.
    """
    short = names or short_names([test.nodeid for test in tests])
    records: dict[str, Record] = {}
    for test in tests:
        for label, latency_ms, samples_ms, method, weight in _found(test, framework):
            name = short[test.nodeid] if label == "forward" else f"{short[test.nodeid]} {label}"
            unique = numbered(name, records)
            records[unique] = Record(unique, latency_ms, method, samples_ms, weight)
    if not records:
        raise RecordError(_nothing(tests, framework))
    return tuple(records.values())


def of_the_kernel(tests: Sequence[TestResult]) -> list[TestResult]:
    """Without those that had nothing but a reference timed, where others launch the kernel."""
    names = {test.nodeid: {name for name, _ in test.properties} for test in tests}
    if not any(PROPERTY in recorded for recorded in names.values()):
        return list(tests)
    return [t for t in tests if PROPERTY in names[t.nodeid] or ASIDE not in names[t.nodeid]]


def records_something(tests: Sequence[TestResult], framework: str) -> bool:
    """Whether there are records among what those tests left behind."""
    try:
        return bool(read_records(tests, framework))
    except RecordError:
        return False


Found = tuple[str, float, tuple[float, ...], str, float]
"""Label, latency in ms, samples in ms, method."""


@dataclass(frozen=True)
class _Field:
    """A part of what a test recorded, with the way to it: an error says what was where."""

    test: str
    path: str
    value: Any

    def at(self, key: str | int) -> _Field:
        """A part of a mapping, which may lack it, or of a list."""
        inside = self.value.get(key) if isinstance(key, str) else self.value[key]
        return _Field(self.test, f"{self.path}[{key!r}]", inside)

    def mapping(self) -> Mapping[Any, Any]:
        """The value, which has to be one."""
        if not isinstance(self.value, Mapping):
            raise self.refused("a mapping")
        return self.value

    def latencies_ms(self) -> tuple[float, ...]:
        """The value, which has to be a list of them."""
        if not isinstance(self.value, list | tuple):
            raise self.refused("a list of times in ms")
        return tuple(self.at(index).latency_ms() for index in range(len(self.value)))

    def latency_ms(self) -> float:
        """The value, which has to be one."""
        return self._above_zero("a number of ms above zero")

    def weight(self) -> float:
        """The value, which has to be one."""
        return self._above_zero("a number above zero")

    def _above_zero(self, needed: str) -> float:
        if isinstance(self.value, int | float) and not isinstance(self.value, bool):
            with suppress(OverflowError):
                if math.isfinite(number := float(self.value)) and number > 0:
                    return number
        raise self.refused(needed)

    def refused(self, needed: str) -> RecordError:
        """The line that says what is wrong with it."""
        try:
            shown = " ".join(_REPR.repr(self.value).split())
        except ValueError:  # an integer of more digits than Python writes
            shown = f"an unwritable {type(self.value).__name__}"
        return RecordError(f"{self.test} recorded {self.path} = {shown}, which is not {needed}")


def _found(test: TestResult, framework: str) -> list[Found]:
    return (
        list(_from_tile_bench(test))
        or list(_from_tilegym(_benchmark_properties(test), framework))
        or list(_from_pytest_benchmark(test))
        or list(_from_tilegym(_printed(test), framework))
    )


def _from_tile_bench(test: TestResult) -> Iterator[Found]:
    for name, value in test.properties:
        if name == PROPERTY:
            record = _Field(test.nodeid, name, value)
            record.mapping()
            samples = record.at("samples_ms").latencies_ms()
            if not samples:
                raise RecordError(f"{test.nodeid} recorded no sample")
            config, method = (record.at(key).value for key in ("config", "method"))
            weight = record.at("weight").weight() if "weight" in value else 1.0
            yield str(config), statistics.median(samples), samples, str(method), weight


def _from_pytest_benchmark(test: TestResult) -> Iterator[Found]:
    if test.benchmark_s:
        times_ms = [1e3 * sample for sample in test.benchmark_s]
        samples = _Field(test.nodeid, "pytest-benchmark", times_ms).latencies_ms()
        yield "forward", statistics.median(samples), samples, "pytest-benchmark", 1.0


def _benchmark_properties(test: TestResult) -> Iterator[_Field]:
    for name, value in test.properties:
        if name == "benchmark" and isinstance(value, Mapping):
            yield _Field(test.nodeid, name, value)


def _printed(test: TestResult) -> Iterator[_Field]:
    for name, text in _PRINTED.findall(test.stdout):
        try:
            value = ast.literal_eval(text)
        except (MemoryError, RecursionError, SyntaxError, TypeError, ValueError):
            continue
        yield _Field(test.nodeid, "its printed line", {name: value})


def _from_tilegym(rows: Iterator[_Field], framework: str) -> Iterator[Found]:
    """The rows of this framework; its name is written 'cutile', 'CuTile' or 'Cutile'."""
    for row in rows:
        for name in row.value:
            directions = row.at(name)
            if str(name).casefold() != framework.casefold() or not isinstance(
                directions.value, Mapping
            ):
                continue
            for direction in _DIRECTIONS:
                figures = directions.at(direction)
                if isinstance(figures.value, Mapping):
                    yield from _from_figures(direction, figures)


def _from_figures(direction: str, figures: _Field) -> Iterator[Found]:
    """The median where there is one: a mean follows every outlier."""
    for statistic in ("median", "mean"):
        latency = figures.at(statistic)
        if latency.value is not None:
            samples = _kernel_times(figures.at("kernel_times"))
            yield direction, latency.latency_ms(), samples, f"TileGym, {statistic}", 1.0
            return


def _kernel_times(times: _Field) -> tuple[float, ...]:
    """Samples, where it is a list of numbers; TileGym keeps a row for each kernel there today."""
    if isinstance(times.value, list) and all(isinstance(t, int | float) for t in times.value):
        return times.latencies_ms()
    return ()


def _nothing(tests: Sequence[TestResult], framework: str) -> str:
    others = {
        " ".join(str(name).split())
        for test in tests
        for row in [*_benchmark_properties(test), *_printed(test)]
        for name in row.value
    }
    if others:
        return f"the perf tests recorded {', '.join(sorted(others))} but nothing for {framework}"
    aside = {str(value) for test in tests for name, value in test.properties if name == ASIDE}
    if aside:
        return (
            f"what the {len(tests)} perf tests time with {', '.join(sorted(aside))} launches no "
            "kernel of the file: name tests that do with --tests or --perf-k"
        )
    who = tests[0].nodeid if len(tests) == 1 else f"the {len(tests)} perf tests"
    return (
        f"{who} recorded no timing; time the launch with the tile_bench "
        "fixture, triton.testing.do_bench, pytest-benchmark's benchmark, or TileGym's "
        "record_property('benchmark', ...); one that times with pairs of CUDA events, or not at "
        "all, has perf tests made of its calls by --capture 'COMMAND'"
    )


def short_names(nodeids: Sequence[str]) -> dict[str, str]:
    """Node id -> the part behind the file, where that is unique."""
    tails = {nodeid: nodeid.partition("::")[2] or nodeid for nodeid in nodeids}
    values = list(tails.values())
    return {nodeid: tail if values.count(tail) == 1 else nodeid for nodeid, tail in tails.items()}


def config_name(stop: Stop, names: Mapping[str, str], taken: Container[str]) -> str:
    """What the config is called at which a test waits, as in its record.

    Args:
        stop: where it waits.
        names: node id -> what its configs are called.
        taken: the configs before it.
    """
    name = names[stop.nodeid]
    return numbered(name if stop.config == "forward" else f"{name} {stop.config}", taken)


def numbered(name: str, taken: Container[str]) -> str:
    """The name, with a number behind it where it is taken already."""
    number = 2
    unique = name
    while unique in taken:
        unique, number = f"{name} #{number}", number + 1
    return unique
