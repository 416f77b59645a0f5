"""Whatever a journal or a worker's message holds: it is understood, or refused in one way."""

from __future__ import annotations

import json
import math
import tempfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import JournalError, TransitionError, WorkerDied
from agent.harness.measuring.records import RecordError, read_records
from agent.harness.processes.collection import read_collection
from agent.harness.processes.results import (
    TestResult,
    read_latencies,
    read_pass,
    understood,
)
from agent.journal import Journal, read, replay
from tests.fuzz.profile import examples, time_limit
from tests.support.history import HISTORY

pytestmark = pytest.mark.full

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
EDITS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 99_999), st.integers(0, 99_999), JSON),
    min_size=1,
    max_size=5,
)


# --- the journal --------------------------------------------------------------------------------


def _history() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        journal = Journal(path)
        for event in HISTORY:
            journal.append(event)
        journal.close()
        return path.read_bytes()


WRITTEN = _history()


def signed(body: Any) -> bytes:
    text = json.dumps(body, separators=(",", ":"))
    return f'{{"crc":"{zlib.crc32(text.encode()):08x}",{text[1:]}\n'.encode()


def replaced(value: Any, at: int, by: Any) -> Any:
    """The value with one of its parts replaced, or one more."""
    if isinstance(value, dict) and value:
        keys = list(value)
        key = keys[at % len(keys)]
        if at % 7 == 0:
            return {k: v for k, v in value.items() if k != key}
        deeper = isinstance(value[key], dict | list) and at % 3
        return value | {key: replaced(value[key], at // 3, by) if deeper else by}
    if isinstance(value, list) and value:
        place = at % len(value)
        return [*value[:place], replaced(value[place], at // 3, by), *value[place + 1 :]]
    return by


def edited(lines: list[bytes], edits: list[tuple[int, int, int, Any]]) -> bytes:
    for what, where, which, value in edits:
        at = where % len(lines)
        line = lines[at]
        match what:
            case 0:
                lines[at] = line[: which % (len(line) + 1)]
            case 1:
                lines.insert(which % len(lines), line)
            case 2:
                place = which % max(len(line), 1)  # it may have been cut to nothing
                lines[at] = line[:place] + bytes([which % 256]) + line[place + 1 :]
            case 3:
                lines[at] = json.dumps(value).encode() + b"\n"
            case 4:
                del lines[at]
            case _:  # a line that is whole, and says something else
                try:
                    body = json.loads(line)
                except ValueError:
                    continue
                if isinstance(body, dict) and len(body) > 1:
                    body.pop("crc", None)
                    lines[at] = signed(replaced(body, which, value) or {"x": 1})
        if not lines:
            return b""
    return b"".join(lines)


@examples(300)
@given(edits=EDITS)
def test_a_journal_is_read_or_refused(edits: list[tuple[int, int, int, Any]]) -> None:
    data = edited(WRITTEN.splitlines(keepends=True), edits)
    with tempfile.TemporaryDirectory() as folder, time_limit():
        path = Path(folder) / "journal.jsonl"
        path.write_bytes(data)
        try:
            events = [line.event for line in read(path)]
        except JournalError as problem:
            assert str(path) in str(problem) and "\n" not in str(problem)
            assert path.read_bytes() == data
            return
        try:
            replay(events)
        except TransitionError as problem:
            assert "\n" not in str(problem)
        journal = Journal(path)  # cuts a torn tail, and nothing else
        assert list(journal.events) == events or repr(list(journal.events)) == repr(events)
        journal.close()
        assert data.startswith(path.read_bytes())


@pytest.mark.parametrize("tail", [b"[" * 100_000 + b"\n", b"9" * 10_000 + b"\n", b"{" * 100_000])
def test_a_tail_that_nobody_wrote_is_cut(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(WRITTEN + tail)
    assert [line.event for line in read(path)] == list(HISTORY)


# --- messages and records -----------------------------------------------------------------------

RESULT: dict[str, Any] = {
    "nodeid": "test_a.py::test_perf",
    "outcome": "passed",
    "text": "",
    "exception": "",
    "properties": [["tile_bench", {"config": "forward", "samples_ms": [0.1], "method": "m"}]],
    "stdout": "",
    "benchmark_s": [0.1],
    "seconds": 0.1,
    "launched": True,
    "tuned_s": 0.0,
}
RAN: dict[str, Any] = {
    "event": "ran",
    "tests": [RESULT],
    "modules": ["k.py"],
    "seconds": 0.2,
    "chosen": {"k": "BLOCK=1"},
    "notes": [],
}
READY: dict[str, Any] = {
    "event": "ready",
    "items": [
        {"nodeid": "a::b", "name": "b", "fixtures": ["x"], "through": ["y"], "bfloat16": False}
    ],
    "errors": [{"nodeid": "a", "text": "SyntaxError"}],
    "skipped": [{"nodeid": "b", "text": "needs eight GPUs"}],
    "installed": {},
    "by_keyword": {"test_": [0]},
}
PLACES = st.lists(st.tuples(st.integers(0, 9_999), JSON), min_size=1, max_size=3)


def altered(message: dict[str, Any], places: list[tuple[int, Any]]) -> dict[str, Any]:
    found: Any = message
    for at, value in places:
        found = replaced(found, at, value)
    return found if isinstance(found, dict) else {"x": found}


@examples(300)
@given(places=PLACES)
def test_a_message_is_understood_or_its_worker_is_at_fault(places: list[tuple[int, Any]]) -> None:
    for message, reader in ((RAN, read_pass), (READY, read_collection)):
        try:
            with understood():
                found = reader(altered(message, places))
        except WorkerDied as problem:
            assert "makes no sense" in str(problem)
            continue
        seconds = getattr(found, "seconds", 0.0)
        assert math.isfinite(seconds)  # a journal holds no other


@examples(200)
@given(value=JSON, count=st.integers(0, 3))
def test_latencies_are_numbers_above_zero(value: Any, count: int) -> None:
    try:
        with understood():
            found = read_latencies(value, count)
    except WorkerDied:
        return
    assert len(found) == count and all(math.isfinite(t) and t > 0 for t in found)


PRINTED = st.sampled_from(
    ("Triton: {} ms", "Triton: {'forward': {'mean': %s}} ms", "triton: {'forward': %s} ms", "%s")
)


@examples(300)
@given(
    name=st.sampled_from(("tile_bench", "benchmark")),
    places=PLACES,
    value=JSON,
    form=PRINTED,
    benchmark_s=st.lists(st.floats(), max_size=3),
)
def test_records_are_numbers_above_zero(
    name: str, places: list[tuple[int, Any]], value: Any, form: str, benchmark_s: list[float]
) -> None:
    figures: dict[str, Any] = {
        "tile_bench": {"config": "forward", "samples_ms": [0.1], "method": "m"},
        "benchmark": {"Triton": {"forward": {"median": 0.1, "kernel_times": [0.1]}}},
    }
    test = TestResult(
        nodeid="a.py::test_perf",
        outcome="passed",
        text="",
        exception="",
        properties=((name, altered(figures[name], places)),),
        stdout=form.replace("%s", repr(value)),
        benchmark_s=tuple(benchmark_s),
    )
    try:
        records = read_records([test], "triton")
    except RecordError as problem:
        assert str(problem)
        assert len(str(problem).splitlines()) == 1
        return
    for record in records:
        assert all(math.isfinite(t) and t > 0 for t in (record.latency_ms, *record.samples_ms))


KEYS = st.sampled_from(
    ("config", "samples_ms", "method", "triton", "Triton", "forward", "median", "kernel_times")
)
FIGURES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
RECORDED = st.recursive(
    FIGURES | st.integers(10**300, 10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=9,
)


@examples(500)
@given(
    properties=st.lists(
        st.tuples(st.sampled_from(("tile_bench", "benchmark", "other")), RECORDED), max_size=3
    )
)
def test_whatever_a_test_records_is_a_record_or_one_line(
    properties: list[tuple[str, Any]],
) -> None:
    test = TestResult(
        nodeid="a.py::test_perf",
        outcome="passed",
        text="",
        exception="",
        properties=tuple(properties),
        stdout="",
        benchmark_s=(),
    )
    try:
        records = read_records([test], "triton")
    except RecordError as problem:
        (line,) = str(problem).splitlines()
        assert (
            "a.py::test_perf recorded" in line
            or "recorded no timing" in line
            or "for triton" in line
        )
        return
    for record in records:
        assert all(math.isfinite(t) and t > 0 for t in (record.latency_ms, *record.samples_ms))
