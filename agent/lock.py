"""One run at a time on a kernel: a file lock, and a note of who holds it.

The lock is the operating system's, so it ends with its process, however that ended, and a worker
does not inherit it. The note lies beside it, since trying a lock may truncate its file.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from agent.errors import UsageError

CLIENT = "TILE_AGENT_CLIENT"
"""The variable that says for whom a command is run."""
_PATIENCE_S = 1.0
"""Longer than another process needs to look whether the lock is held."""


@dataclass(frozen=True)
class Owner:
    """The process that holds a lock."""

    pid: int
    run_id: str
    kernel: str
    started: float
    """When the process began, in seconds since the epoch: a pid alone may be another's by now."""
    host: str = ""
    client: str = ""
    """For whom it works: an MCP client with its server, or the process that started it."""

    @property
    def alive(self) -> bool:
        """Whether the process still exists and is the same one."""
        try:
            return abs(psutil.Process(self.pid).create_time() - self.started) < 1.0
        except psutil.Error:
            return False


@contextmanager
def hold(folder: Path, kernel: str, run_id: str) -> Iterator[None]:
    """Hold the lock of a kernel.

    Raises:
        UsageError: another run holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    note = _note(folder, kernel)
    lock = FileLock(note.with_suffix(".lock"), timeout=_PATIENCE_S)
    try:
        lock.acquire()
    except Timeout:
        raise UsageError(_taken(kernel, run_id, _noted(note))) from None
    try:
        process = psutil.Process()
        begun = process.create_time()
        mine = Owner(process.pid, run_id, kernel, begun, platform.node(), _client())
        fresh = note.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(mine)), encoding="utf-8")
        fresh.replace(note)
        yield
    finally:
        note.unlink(missing_ok=True)
        lock.release()


def owner(folder: Path, kernel: str) -> Owner | None:
    """Who holds the lock of a kernel; None when nobody that we can see does."""
    note = _note(folder, kernel)
    if not note.exists():
        return None
    lock = FileLock(note.with_suffix(".lock"))
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return _read(note)
    lock.release()
    return None


def _note(folder: Path, kernel: str) -> Path:
    return folder / f"{hashlib.sha256(os.fsencode(kernel)).hexdigest()[:12]}.json"


def _noted(note: Path) -> Owner | None:
    try:
        return Owner(**json.loads(note.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _read(note: Path) -> Owner | None:
    """The owner that a note names, unless it is a leftover of a process that was killed."""
    found = _noted(note)
    return found if found and found.alive else None


def _client() -> str:
    """For whom this process works."""
    if named := os.environ.get(CLIENT):
        return named
    with suppress(psutil.Error):
        parent = psutil.Process().parent()
        return f"{parent.name()}, pid {parent.pid}" if parent else ""
    return ""


def _taken(kernel: str, run_id: str, found: Owner | None) -> str:
    """Whose run holds a kernel, and the way out."""
    elsewhere = found is not None and found.host not in ("", platform.node())
    if found is None or not (elsewhere or found.alive):
        return f"another run is alive on {kernel}, but not visible from here: wait for it to end"
    name, who = found.run_id, f"pid {found.pid}"
    if elsewhere:
        who += f" on {found.host}"
    if found.client == _client():
        whose = f"your run {name} is at work on {kernel} in another call ({who})"
    elif name == run_id:
        whose = f"run {name} is at work on {kernel} for another client ({found.client}; {who})"
    else:
        client = f", for {found.client}" if found.client else ""
        whose = f"another run ({name}, {who}{client}) is alive on {kernel}"
    there = "there " if elsewhere else ""
    return f"{whose}: wait for it to end, or stop it {there}with `tile-agent stop {name}`"
