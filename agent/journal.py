"""The journal: append-only JSON lines, each on disk before the run goes on.

A line is `{"crc", "seq", "time", "type", "data"}`. The checksum covers the rest, so a line that a
crash or a full disk left half-written is recognized; such a tail is cut off when the journal is
opened for writing, because an append behind a fragment would be lost with it. A bad line anywhere
else is damage, and an error.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import cattrs
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from agent.errors import JournalError, TransitionError
from agent.events import EVENTS, Event, Proposed, Started
from agent.redaction import redact_values
from agent.state import Run
from agent.transitions import advance

SCHEMA = 1
"""Version of the events' layout; a journal of another version is refused, not guessed at."""

Kind = TypeVar("Kind", bound=Event)

_KEYS = {"crc", "seq", "time", "type", "data"}
_TYPES = {kind.__name__: kind for kind in EVENTS}
_converter = cattrs.Converter(forbid_extra_keys=True)
_FILTERED_OUT = override(rename="sorted_out")
"""What journals call the field `filtered_out`: a key outlives the name of a field."""
_converter.register_structure_hook(
    Proposed,
    make_dict_structure_fn(
        Proposed, _converter, _cattrs_forbid_extra_keys=True, filtered_out=_FILTERED_OUT
    ),
)
_converter.register_unstructure_hook(
    Proposed, make_dict_unstructure_fn(Proposed, _converter, filtered_out=_FILTERED_OUT)
)


@dataclass(frozen=True)
class JournalLine:
    """One line, as read back."""

    seq: int
    time_s: float
    """Seconds since the epoch."""
    event: Event


class Journal:
    """The journal of one run, open for appending. Only one process may hold it open."""

    def __init__(self, path: Path) -> None:
        """Open or create it, cutting off a torn tail.

        Raises:
            JournalError: it is damaged, or of another version.
        """
        self.path = path
        created = not path.exists()
        entries, good_bytes = _parse(path.read_bytes() if not created else b"", path)
        self._events = [entry.event for entry in entries]
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.ftruncate(self._fd, good_bytes)
        os.lseek(self._fd, good_bytes, os.SEEK_SET)
        if created:
            _sync_folder(path.parent)

    @property
    def events(self) -> Sequence[Event]:
        """Everything that happened, in order."""
        return tuple(self._events)

    def append(self, event: Event) -> None:
        """Write an event and wait until it is on disk.

        Raises:
            JournalError: the disk refused it; the file is as it was.
        """
        event = without_secrets(event)
        if not self.path.exists():
            self._write_again()
        line = _encode(len(self._events), time.time(), event)
        begin = os.lseek(self._fd, 0, os.SEEK_CUR)
        try:
            written = os.write(self._fd, line)
            if written != len(line):
                raise OSError(f"only {written} of {len(line)} bytes were written")
            os.fsync(self._fd)
        except OSError as problem:
            os.ftruncate(self._fd, begin)
            os.lseek(self._fd, begin, os.SEEK_SET)
            raise JournalError(
                f"{self.path} cannot be written ({problem}): free some space, then resume"
            ) from problem
        self._events.append(event)

    def _write_again(self) -> None:
        """Somebody removed the file (`git clean` does): put it back with all that it held."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        os.close(self._fd)
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        now = time.time()
        lines = [_encode(seq, now, event) for seq, event in enumerate(self._events)]
        os.write(self._fd, b"".join(lines))
        os.fsync(self._fd)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def read(path: Path) -> tuple[JournalLine, ...]:
    """The entries of a journal that another process may be writing; a torn tail is left out.

    Raises:
        JournalError: it is damaged, of another version, or not there.
    """
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise JournalError(f"{path} cannot be read: {problem.strerror}") from problem
    return tuple(_parse(data, path)[0])


def beginning(path: Path) -> Started | None:
    """How the run of a journal began, by its first line alone; None where that cannot be read."""
    try:
        with path.open("rb") as file:
            event = _decode(file.readline().removesuffix(b"\n"), 0, path).event
    except (OSError, ValueError, RecursionError, JournalError):
        return None
    return event if isinstance(event, Started) else None


def replay(events: Sequence[Event]) -> Run:
    """The run that the events make.

    Raises:
        TransitionError: they make none: no tile-agent wrote them in this order, or with this in it.
    """
    try:
        return reduce(advance, events, Run())
    except (ArithmeticError, LookupError, StopIteration, TypeError, ValueError) as problem:
        raise TransitionError(f"the events do not fit together: {problem!r}") from problem


def without_secrets(event: Kind) -> Kind:
    """The event without the secrets that a provider, a model, a program or a test let into it.

    How a run began names files, which a secret may be called after, and nobody else's words; what
    the user asked for is looked at before (`agent.proposers.build.check`).
    """
    if isinstance(event, Started):
        return event
    data = _converter.unstructure(event)
    told = redact_values(data, os.environ)
    return event if told == data else _converter.structure(told, type(event))


def to_json(value: Any) -> Any:
    """Events and their parts, and tuples of them, as plain JSON values."""
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    return _converter.unstructure(value)


def _encode(seq: int, time_s: float, event: Event) -> bytes:
    body: dict[str, Any] = {
        "seq": seq,
        "time": round(time_s, 3),
        "type": type(event).__name__,
        "data": to_json(event),
    }
    if isinstance(event, Started):
        body["schema"] = SCHEMA
    text = json.dumps(body, separators=(",", ":"), allow_nan=False)
    return f'{{"crc":"{_checksum(text)}",{text[1:]}\n'.encode()


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def _parse(data: bytes, path: Path) -> tuple[list[JournalLine], int]:
    """The entries and the length of the good part. Only the last line may be bad."""
    entries: list[JournalLine] = []
    position = 0
    while position < len(data):
        end = data.find(b"\n", position)
        line = data[position : end if end >= 0 else len(data)]
        try:
            if end < 0:
                raise ValueError("no newline")
            entries.append(_decode(line, len(entries), path))
        except (ValueError, RecursionError) as problem:
            if end >= 0 and end + 1 < len(data):
                raise JournalError(
                    f"{path} is damaged at line {len(entries) + 1}: {problem}"
                ) from problem
            break
        position = end + 1
    return entries, position


def _decode(line: bytes, seq: int, path: Path) -> JournalLine:
    """Read one line.

    Raises:
        ValueError: it is not as it was written.
        JournalError: it is, but another version wrote it.
    """
    body = json.loads(line)
    text = "{" + line.decode()[len('{"crc":"00000000",') :]
    whole = isinstance(body, dict) and body.get("crc") == _checksum(text)
    if not whole or body.get("seq") != seq:
        raise ValueError("its checksum or its number is wrong")
    if not body.keys() >= _KEYS or not isinstance(body["time"], int | float):
        raise ValueError("it lacks what every line has")
    if body.get("schema", SCHEMA) != SCHEMA:
        raise JournalError(
            f"{path} has schema {body['schema']}; this tile-agent reads {SCHEMA}: "
            "finish the run with the version that began it"
        )
    try:
        event = _converter.structure(body["data"], _TYPES[body["type"]])
    except (AttributeError, KeyError, TypeError, cattrs.BaseValidationError) as problem:
        kind = " ".join(str(body["type"]).split())
        raise JournalError(
            f"{path} holds an event at line {seq + 1} that this tile-agent does not know "
            f"({kind}): finish the run with the version that began it"
        ) from problem
    return JournalLine(seq, body["time"], event)


def _sync_folder(folder: Path) -> None:
    """Make a new file's name durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
