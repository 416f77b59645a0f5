"""The journal: what is written is read back, and no crash, damage or full disk spoils it."""

from __future__ import annotations

import dataclasses
import enum
import json
import os
import random
import shutil
import subprocess
import sys
import textwrap
import types
import typing
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.errors import JournalError
from agent.events import (
    EVENTS,
    Dropped,
    Event,
    Gathered,
    GivenUp,
    HandedOver,
    Measured,
    Offered,
    Scouted,
    Skipped,
    Stopped,
    StopReason,
)
from agent.journal import SCHEMA, Journal, read, replay
from agent.report.table import render
from agent.state import Phase, Run
from agent.transitions import advance
from tests.support.history import HISTORY, STARTED

ROOT = Path(__file__).parent.parent
ASSET = Path(__file__).parent / "assets" / "journal_v1.jsonl"
CHARACTERS = [*"aZ09 _-:/\\\"'{}[]|,\n\r\t\0\x1b\x7fäßλ中🚀\u2028", "\ud800"]
FLOATS = (0.0, -0.0, 0.1, 1 / 3, 5e-324, 1.7976931348623157e308, -2.5e-7, 1e22, 123456.789)


def invent(kind: Any, rng: random.Random) -> Any:
    """A value of that type, with whatever is awkward about it."""
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        names = [field.name for field in dataclasses.fields(kind)]
        return kind(**{name: invent(hints[name], rng) for name in names})  # type: ignore[operator]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple and arguments[-1] is not ...:
        return tuple(invent(argument, rng) for argument in arguments)
    if origin is tuple:
        return tuple(invent(arguments[0], rng) for _ in range(rng.randrange(4)))
    if origin is dict:
        return {invent(str, rng): invent(arguments[1], rng) for _ in range(rng.randrange(4))}
    if kind is Any:
        return anything(rng)
    if origin in (typing.Union, types.UnionType):
        return invent(rng.choice(arguments), rng)
    if issubclass(kind, enum.Enum):
        return rng.choice(list(kind))
    if kind is type(None):
        return None
    makers: dict[type, Callable[[], Any]] = {
        str: lambda: "".join(rng.choices(CHARACTERS, k=rng.randrange(12))),
        bool: lambda: rng.random() < 0.5,
        int: lambda: rng.randrange(-(10**6), 10**18),
        float: lambda: rng.choice(FLOATS) if rng.random() < 0.5 else rng.lognormvariate(0, 5),
    }
    return makers[kind]()


def anything(rng: random.Random, depth: int = 2) -> Any:
    """Any JSON value."""
    if depth and rng.random() < 0.4:
        if rng.random() < 0.5:
            return [anything(rng, depth - 1) for _ in range(rng.randrange(3))]
        return {invent(str, rng): anything(rng, depth - 1) for _ in range(rng.randrange(3))}
    return invent(rng.choice([str, bool, int, float, type(None)]), rng)


def written(path: Path, events: tuple[Event, ...] = HISTORY) -> Path:
    journal = Journal(path)
    for event in events:
        journal.append(event)
    journal.close()
    return path


def events_of(path: Path) -> tuple[Event, ...]:
    return tuple(entry.event for entry in read(path))


def signed_line(body: dict[str, Any]) -> bytes:
    """A line with a correct checksum, whatever it says."""
    text = json.dumps(body, separators=(",", ":"))
    return f'{{"crc":"{zlib.crc32(text.encode()):08x}",{text[1:]}\n'.encode()


# --- round trip ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", EVENTS)
def test_every_event_comes_back_as_it_was(tmp_path: Path, kind: type[Event]) -> None:
    rng = random.Random(kind.__name__)
    events = tuple(invent(kind, rng) for _ in range(60))
    path = written(tmp_path / "journal.jsonl", events)
    assert events_of(path) == events
    assert path.read_bytes().count(b"\n") == len(events)
    reopened = Journal(path)
    assert reopened.events == events
    reopened.close()


def test_the_run_is_rebuilt_from_disk(tmp_path: Path) -> None:
    path = written(tmp_path / "journal.jsonl")
    run = Run()
    for event in HISTORY:
        run = advance(run, event)
    assert replay(events_of(path)) == run


def test_entries_carry_their_number_and_their_time(tmp_path: Path) -> None:
    entries = read(written(tmp_path / "journal.jsonl"))
    assert [entry.seq for entry in entries] == list(range(len(HISTORY)))
    times = [entry.time_s for entry in entries]
    assert times == sorted(times)


def test_each_event_is_on_disk_before_append_returns(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    for count, event in enumerate(HISTORY, start=1):
        journal.append(event)
        assert len(read(path)) == count
    journal.close()


def test_a_journal_is_continued_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    for event in HISTORY:
        written(path, (event,))
    assert events_of(path) == HISTORY


@pytest.mark.parametrize("figure", [float("nan"), float("inf")])
def test_what_json_does_not_know_is_refused_before_anything_is_written(
    tmp_path: Path, figure: float
) -> None:
    path = written(tmp_path / "journal.jsonl", HISTORY[:2])
    before = path.read_bytes()
    journal = Journal(path)
    with pytest.raises(ValueError, match="not JSON compliant"):
        journal.append(Skipped("a", "b", took_s=figure))
    assert path.read_bytes() == before
    journal.append(HISTORY[2])
    journal.close()
    assert events_of(path) == HISTORY[:3]


# --- a torn tail --------------------------------------------------------------------------------


def test_a_tail_torn_at_any_byte_is_cut_and_the_journal_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    whole = written(path).read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for length in range(last, len(whole)):
        path.write_bytes(whole[:length])
        assert events_of(path) == HISTORY[:-1], length
        assert path.read_bytes() == whole[:length], "reading changes nothing"
        journal = Journal(path)
        assert journal.events == HISTORY[:-1], length
        assert path.read_bytes() == whole[:last], length
        journal.append(HISTORY[-1])
        journal.close()
        assert events_of(path) == HISTORY, length


@pytest.mark.parametrize("tail", [b"\0" * 300, b"\0" * 300 + b"\n", b"null\n", b"[]\n", b"\xff\n"])
def test_what_a_power_cut_leaves_at_the_end_is_cut(tmp_path: Path, tail: bytes) -> None:
    path = written(tmp_path / "journal.jsonl")
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    assert events_of(path) == HISTORY
    Journal(path).close()
    assert path.read_bytes() == whole


def test_a_journal_torn_in_its_first_line_is_empty(tmp_path: Path) -> None:
    path = written(tmp_path / "journal.jsonl", (STARTED,))
    path.write_bytes(path.read_bytes()[:40])
    assert read(path) == ()
    assert events_of(written(path, (STARTED,))) == (STARTED,)


# --- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [1, 2, len(HISTORY) - 1])
@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace(b"took_s", b"tool_s"),
        lambda text: text[: len(text) // 2],
        lambda _: b"",
        lambda _: b"null",
        lambda _: b"[1]",
        lambda text: b"\xff" + text,
        lambda text: b"\0" * len(text),
        lambda text: text + b" ",
    ],
    ids=["changed", "torn", "empty", "null", "list", "not utf-8", "zeros", "longer"],
)
def test_damage_in_the_middle_is_an_error_that_names_the_line(
    tmp_path: Path, line: int, damage: Callable[[bytes], bytes]
) -> None:
    path = written(tmp_path / "journal.jsonl")
    lines = path.read_bytes().split(b"\n")
    lines[line - 1] = damage(lines[line - 1])
    path.write_bytes(b"\n".join(lines))
    before = path.read_bytes()
    with pytest.raises(JournalError, match=f"journal.jsonl is damaged at line {line}:"):
        read(path)
    with pytest.raises(JournalError, match=f"damaged at line {line}:"):
        Journal(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("line", [1, 5])
def test_a_missing_line_is_damage(tmp_path: Path, line: int) -> None:
    path = written(tmp_path / "journal.jsonl")
    lines = path.read_bytes().split(b"\n")
    del lines[line - 1]
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(JournalError, match=f"damaged at line {line}: its checksum or its number"):
        read(path)


def test_another_schema_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "journal.jsonl", (STARTED,))
    body = json.loads(path.read_bytes())
    del body["crc"]
    body["schema"] = SCHEMA + 1
    path.write_bytes(signed_line(body))
    before = path.read_bytes()
    with pytest.raises(JournalError, match=f"has schema {SCHEMA + 1}; this tile-agent reads"):
        read(path)
    with pytest.raises(JournalError, match="finish the run with the version that began it"):
        Journal(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [
        {"type": "Teleported"},
        {"data": {"took_s": 0.0, "optimization": "a", "reason": "b", "mood": "good"}},
        {"data": {"took_s": 0.0, "optimization": "a"}},
        {"type": "Stopped", "data": {"took_s": 0.0, "reason": "boredom", "detail": ""}},
        {"data": []},
        {"data": None},
    ],
    ids=["type", "one field more", "one field less", "enum", "a list", "nothing"],
)
@pytest.mark.parametrize("last", [True, False])
def test_an_event_of_another_version_is_refused_and_never_cut_off(
    tmp_path: Path, change: dict[str, Any], last: bool
) -> None:
    """Its checksum is right, so it is no torn tail: cutting it off would lose what happened."""
    path = written(tmp_path / "journal.jsonl", HISTORY[:2])
    body = {
        "seq": 2,
        "time": 1.0,
        "type": "Skipped",
        "data": {"took_s": 0.0, "optimization": "a", "reason": "b"},
    }
    tail = b"" if last else signed_line(body | {"seq": 3})
    path.write_bytes(path.read_bytes() + signed_line(body | change) + tail)
    before = path.read_bytes()
    with pytest.raises(JournalError, match="line 3"):
        Journal(path)
    with pytest.raises(JournalError, match="line 3"):
        read(path)
    assert path.read_bytes() == before


def test_a_journal_that_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"missing\.jsonl cannot be read: No such file"):
        read(tmp_path / "missing.jsonl")


# --- a full disk --------------------------------------------------------------------------------

FULL = """
import os, resource, sys
from pathlib import Path
from agent.errors import JournalError
from agent.journal import Journal
from tests.support.history import HISTORY

path, room = Path(sys.argv[1]), int(sys.argv[2])
journal = Journal(path)
for event in HISTORY[:4]:
    journal.append(event)
before = path.read_bytes()
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + room, hard))
for attempt in range(2):
    try:
        journal.append(HISTORY[4])
    except JournalError as problem:
        print(problem)
    assert path.read_bytes() == before, "the file is as it was"
    assert journal.events == HISTORY[:4]
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
for event in HISTORY[4:]:
    journal.append(event)
journal.close()
assert Journal(path).events == HISTORY
"""


@pytest.mark.parametrize("room", [0, 1, 60])
def test_a_file_that_may_not_grow_stays_as_it_was_and_goes_on_later(
    tmp_path: Path, room: int
) -> None:
    """The system takes none of the line, or a part of it."""
    path = tmp_path / "journal.jsonl"
    command = [sys.executable, "-c", FULL, str(path), str(room)]
    end = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert end.returncode == 0, end.stderr
    assert end.stdout.count("free some space, then resume") == 2


SMALL_DISK = """
import sys
from pathlib import Path
from agent.errors import JournalError
from agent.journal import Journal, read
from agent.events import Skipped
from tests.support.history import HISTORY

disk = Path(sys.argv[1])
journal = Journal(disk / "journal.jsonl")
kept = 0
try:
    for kept in range(10_000):
        journal.append(Skipped("x" * 300, "y"))
except JournalError as problem:
    assert "No space left on device" in str(problem) or "bytes were written" in str(problem)
    print(problem)
assert kept and len(read(disk / "journal.jsonl")) == kept == len(journal.events)
(disk / "ballast").unlink()
journal.append(HISTORY[2])
assert read(disk / "journal.jsonl")[-1].event == HISTORY[2]
"""


def test_a_full_disk_leaves_the_journal_whole(tmp_path: Path) -> None:
    """On a real file system of 64 KiB, where this user may mount one."""
    mount = shutil.which("mount")
    command = f"mount -t tmpfs -o size=64k none {tmp_path}"
    if os.getuid() != 0 or mount is None:
        pytest.skip("mounting a small file system needs root")
    if subprocess.run(command.split(), capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine lets nobody mount a file system")
    try:
        (tmp_path / "ballast").write_bytes(b"x" * 16_384)
        script = [sys.executable, "-c", SMALL_DISK, str(tmp_path)]
        end = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=False)
        assert end.returncode == 0, end.stderr
        assert "free some space, then resume" in end.stdout
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


# --- yesterday's journals -----------------------------------------------------------------------


def test_a_journal_of_version_1_still_reads(tmp_path: Path) -> None:
    """Frozen: never write this file anew; a change that breaks it needs a new schema version."""
    events = events_of(ASSET)
    assert {type(event) for event in events} == set(EVENTS) - {
        Dropped,
        Gathered,
        GivenUp,
        HandedOver,
        Offered,
        Scouted,
    }  # later
    assert [e.verdict for e in events if isinstance(e, Measured)] == [None, None]
    run = replay(events)
    assert run.phase is Phase.DONE
    assert run.started is not None
    assert run.started.options.only == ("occupancy", "block_size")
    assert run.stopped == Stopped(StopReason.NO_IMPROVEMENT, "after 2 of them")
    assert render(run.rows) == textwrap.dedent(
        """\
        | iteration | optimization     | latency_ms | correctness | status |
        |----------:|:-----------------|-----------:|:------------|-------:|
        |         0 | baseline         |   0.820000 | PASS        |   keep |
        |         1 | block_size (n=0) |   0.738000 | PASS        |   keep |
        |         2 | occupancy (n=0)  |   0.984000 | PASS        | revert |
        |         3 | reciprocal (n=0) |        nan | FAIL        | revert |
        """
    )


def test_opening_a_journal_of_version_1_changes_nothing_in_it(tmp_path: Path) -> None:
    copy = tmp_path / "journal.jsonl"
    shutil.copy(ASSET, copy)
    journal = Journal(copy)
    assert journal.events == events_of(ASSET)
    journal.close()
    assert copy.read_bytes() == ASSET.read_bytes()


def test_an_event_of_a_journal_that_held_no_verdicts_reads_without_one(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    measured = next(e for e in HISTORY if isinstance(e, Measured) and e.verdict)
    written(path, (*HISTORY[:2], measured))
    *others, last = path.read_bytes().splitlines(keepends=True)
    body = json.loads(last)
    del body["crc"], body["data"]["verdict"]
    path.write_bytes(b"".join(others) + signed_line(body))
    assert events_of(path) == (*HISTORY[:2], dataclasses.replace(measured, verdict=None))


def test_no_secret_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "correct-horse-battery")
    journal = Journal(tmp_path / "journal.jsonl")
    journal.append(HISTORY[0])
    journal.append(Skipped("block-size", "the key correct-horse-battery is wrong"))
    journal.close()
    assert "correct-horse" not in journal.path.read_text()
    began, skipped = (line.event for line in read(journal.path))
    assert began == HISTORY[0]
    assert skipped == Skipped("block-size", "the key [secret removed] is wrong")
    assert tuple(journal.events) == (began, skipped)
