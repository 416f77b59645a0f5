"""The store's file: SQLite beside tile-agent's other state, written by several runs at once.

Its journal is SQLite's own rollback journal, not a write-ahead log: a home on a network file
system, which the machines of a cluster share, allows no shared memory. A run writes a few rows an
iteration, and waits while another one does.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple, fields
from pathlib import Path

from agent.errors import UsageError
from agent.redaction import redact_values
from agent.repository import shown
from agent.store.judgements import Judgement
from agent.workspace import state_dir

FILE = "memory.sqlite"
BUSY_S = 5.0
"""For so long who wants to write waits for another one that does."""
APPLICATION = 0x7469_6C65
"""Tells the file from any other of SQLite: 'tile'."""
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
"""What SQLite says of a file that is none of its own, or lacks the table."""
_NAMES = tuple(field.name for field in fields(Judgement))
_STEPS = (
    """
    CREATE TABLE judgements (
        key TEXT PRIMARY KEY,
        began_at_s INTEGER NOT NULL,
        version TEXT NOT NULL,
        backend TEXT NOT NULL,
        kind TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        dtypes TEXT NOT NULL,
        shapes TEXT NOT NULL,
        gpu TEXT NOT NULL,
        sm INTEGER NOT NULL,
        toolchain TEXT NOT NULL,
        proposer TEXT NOT NULL,
        entry TEXT NOT NULL,
        params TEXT NOT NULL,
        status TEXT NOT NULL,
        outcome TEXT NOT NULL,
        gain REAL,
        low REAL,
        high REAL,
        hypothesis TEXT NOT NULL,
        change TEXT NOT NULL
    )
    """,
)
"""Step n makes layout n of layout n - 1: what an older tile-agent wrote is brought along."""
SCHEMA = len(_STEPS)


def store_path() -> Path:
    """Where the store is, or would be."""
    return state_dir() / FILE


def add(judgements: Sequence[Judgement]) -> int:
    """Keep what is not kept yet, and say of how much there is something new.

    What became of a judgement may change: a run may not find a gain again at its end.

    Raises:
        UsageError: the store cannot be written; nothing of these is in it.
    """
    rows = [redact_values(astuple(each), os.environ) for each in judgements]
    marks = ", ".join("?" * len(_NAMES))
    with _writing() as connection:
        before = connection.total_changes
        connection.executemany(
            f"INSERT INTO judgements ({', '.join(_NAMES)}) VALUES ({marks}) "
            "ON CONFLICT DO UPDATE SET outcome = excluded.outcome "
            "WHERE outcome != excluded.outcome",
            rows,
        )
        return connection.total_changes - before


def stored(
    *,
    backend: str = "",
    kind: str = "",
    gpu: str | None = None,
    entry: str = "",
    before_s: int | None = None,
) -> tuple[Judgement, ...]:
    """What is known, the oldest first; nothing where there is no store yet.

    Args:
        backend: only of this language.
        kind: only of kernels of this kind.
        gpu: only on this model; empty: only in an interpreter.
        entry: only of this optimization.
        before_s: only of runs that began before this second since 1970.

    Raises:
        UsageError: the store cannot be read.
    """
    path = store_path()
    if not path.is_file():
        return ()
    where, values = _where(backend=backend, kind=kind, gpu=gpu, entry=entry, before_s=before_s)
    query = f"SELECT {', '.join(_NAMES)} FROM judgements{where} ORDER BY began_at_s, rowid"
    with _told(path), closing(_connected(path, "ro")) as connection:
        if not _check_layout(connection, path):
            return ()
        return tuple(Judgement(*row) for row in connection.execute(query, values))


def forget(*, entry: str = "", gpu: str | None = None, before_s: int | None = None) -> int:
    """Delete what is known, or a part of it, so that no byte of it stays; say how many rows.

    Raises:
        UsageError: the store cannot be written.
    """
    path = store_path()
    if not path.is_file():
        return 0
    where, values = _where(entry=entry, gpu=gpu, before_s=before_s)
    with _writing() as connection:
        count = connection.execute(f"DELETE FROM judgements{where}", values).rowcount
    with _told(path), closing(_connected(path, "rw")) as connection:
        connection.execute("VACUUM")
    return count


def remove() -> bool:
    """Delete the file, whatever is in it; say whether there was one.

    Raises:
        UsageError: that is not possible.
    """
    path = store_path()
    with _told(path):
        path.with_name(f"{path.name}-journal").unlink(missing_ok=True)
        existed = path.exists()
        path.unlink(missing_ok=True)
    return existed


@contextmanager
def _writing() -> Iterator[sqlite3.Connection]:
    """One transaction, in a store of today's layout; made where there is none."""
    path = store_path()
    with _told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # it is nobody else's matter
        with closing(_connected(path, "rw")) as connection:
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("BEGIN IMMEDIATE")
            _bring_along(connection, path)
            yield connection
            connection.execute("COMMIT")


def _bring_along(connection: sqlite3.Connection, path: Path) -> None:
    layout = _check_layout(connection, path)
    for step in _STEPS[layout:]:
        connection.execute(step)
    if layout < SCHEMA:
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {SCHEMA}")


def _check_layout(connection: sqlite3.Connection, path: Path) -> int:
    """The layout of a file that is a store, or that is new."""
    (layout,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and application != APPLICATION:
        raise UsageError(f"{shown(path)} is a database of another program: move it away")
    if layout > SCHEMA:
        raise UsageError(
            f"{shown(path)} has layout {layout}, and this tile-agent {SCHEMA}: update tile-agent, "
            "or move the file away"
        )
    return int(layout)


def _connected(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.as_uri()}?mode={mode}", uri=True, timeout=BUSY_S, isolation_level=None
    )


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What SQLite and the system say, in one line with how to mend it."""
    try:
        yield
    except sqlite3.Error as problem:
        if getattr(problem, "sqlite_errorcode", 0) & 0xFF not in _DAMAGE:
            raise UsageError(
                f"the store {shown(path)} cannot be used ({problem}): look at its folder and disk, "
                "and whether another program holds it"
            ) from problem
        raise UsageError(
            f"the store {shown(path)} is damaged ({problem}): `tile-agent memory forget --all` "
            "begins a new one"
        ) from problem
    except OSError as problem:
        raise UsageError(
            f"the store {shown(path)} cannot be written ({problem.strerror or problem}): set "
            "TILE_AGENT_STATE_DIR to a folder that can"
        ) from problem


def _where(
    *,
    backend: str = "",
    kind: str = "",
    gpu: str | None = None,
    entry: str = "",
    before_s: int | None = None,
) -> tuple[str, list[str | int]]:
    asked: dict[str, str | int | None] = {
        "backend = ?": backend or None,
        "kind = ?": kind or None,
        "gpu = ?": gpu,
        "entry = ?": entry or None,
        "began_at_s < ?": before_s,
    }
    given = {clause: value for clause, value in asked.items() if value is not None}
    return (f" WHERE {' AND '.join(given)}" if given else ""), list(given.values())
