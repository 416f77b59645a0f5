"""The store's file: real SQLite, several writers, and all that can be wrong with a file."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import UsageError
from agent.store import database
from agent.store.database import APPLICATION, SCHEMA, add, forget, remove, store_path, stored
from tests.store.conftest import judgement

ROOT = Path(__file__).resolve().parents[2]


def test_what_is_kept_comes_back_once_and_the_oldest_first() -> None:
    assert stored() == ()
    assert not store_path().exists()  # asking makes no file
    late = judgement("late", began_at_s=1_795_700_000)
    early, other = judgement("early"), judgement("other", gpu="", backend="cutile", entry="exp2")
    assert add([late, early]) == 2
    assert add([early, replace(late, gain=0.9), other]) == 1
    assert stored() == (early, other, late)
    assert stored(backend="cutile") == stored(gpu="") == stored(entry="exp2") == (other,)
    assert stored(kind="atomics") == stored(gpu="NVIDIA") == ()
    assert stored(before_s=late.began_at_s) == (early, other)
    assert stat.S_IMODE(store_path().stat().st_mode) == 0o600


def test_what_is_forgotten_is_in_no_byte_of_the_file() -> None:
    many = [judgement(f"key-{n}", entry="exp2", change="+ unforgettable\n" * 50) for n in range(40)]
    add([*many, judgement("stays")])
    assert b"unforgettable" in store_path().read_bytes()
    assert forget(entry="exp2") == 40
    left = b"".join(path.read_bytes() for path in store_path().parent.glob(f"{store_path().name}*"))
    assert b"unforgettable" not in left
    assert [each.key for each in stored()] == ["stays"]
    assert forget(gpu="", before_s=1) == 0
    assert remove()
    assert not store_path().exists()
    assert not remove()
    assert forget(entry="exp2") == 0


WRITER = """\
import sys
from agent.store.database import add
from tests.store.conftest import judgement
for number in range(25):
    assert add([judgement(f"{sys.argv[1]}-{number}"), judgement("of both")]) >= 1
"""
HELD = """\
import sys, time
from agent.store import database
with database._writing() as connection:
    connection.execute("DELETE FROM judgements")
    print("held", flush=True)
    time.sleep(60)
"""


def python(program: str, *words: str) -> subprocess.Popen[str]:
    """A process of its own, in this test's state folder."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_processes_that_write_at_once_lose_nothing() -> None:
    writers = [python(WRITER, name) for name in ("one", "two", "three")]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0]
    for writer in writers:
        writer.communicate()
    assert len(stored()) == 3 * 25 + 1


def test_a_writer_that_is_killed_leaves_the_store_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = judgement("before")
    add([before])
    monkeypatch.setattr(database, "BUSY_S", 0.1)
    with python(HELD) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match=r"cannot be used \(database is locked\)"):
            add([judgement("meanwhile")])
        assert stored() == (before,)  # who reads does not wait
        holder.send_signal(signal.SIGKILL)
    assert add([judgement("after")]) == 1
    assert {each.key for each in stored()} == {"before", "after"}


def corrupt() -> None:
    store_path().write_bytes(b"SQLite format 3\0" + os.urandom(4096))


def cut_short() -> None:
    add([judgement(f"key-{n}") for n in range(200)])
    store_path().write_bytes(store_path().read_bytes()[:-5000])


def without_its_table() -> None:
    add([judgement("one")])
    with closing(sqlite3.connect(store_path())) as connection:
        connection.execute("DROP TABLE judgements")


@pytest.mark.parametrize("broken", [corrupt, cut_short, without_its_table])
def test_a_damaged_file_is_said_to_be_that_and_begun_anew_on_request(broken: object) -> None:
    store_path().parent.mkdir()
    broken()  # type: ignore[operator]
    for use in (stored, lambda: add([judgement("new")])):
        with pytest.raises(UsageError, match="is damaged") as caught:
            use()
        assert "\n" not in str(caught.value)
        assert "`tile-agent memory forget --all` begins a new one" in str(caught.value)
    remove()
    assert add([judgement("new")]) == 1


def test_a_layout_of_tomorrow_is_refused_and_left_alone() -> None:
    add([judgement("one")])
    with closing(sqlite3.connect(store_path())) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    before = store_path().read_bytes()
    for use in (stored, lambda: add([judgement("new")]), lambda: forget(entry="exp2")):
        with pytest.raises(UsageError, match="update tile-agent, or move the file away"):
            use()
    assert store_path().read_bytes() == before


def test_a_database_of_another_program_is_left_alone() -> None:
    store_path().parent.mkdir()
    with closing(sqlite3.connect(store_path())) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    before = store_path().read_bytes()
    for use in (stored, lambda: add([judgement("new")])):
        with pytest.raises(UsageError, match="is a database of another program"):
            use()
    assert store_path().read_bytes() == before


def test_an_empty_file_becomes_a_store() -> None:
    store_path().parent.mkdir()
    store_path().touch()
    assert stored() == ()
    add([judgement("one")])
    with closing(sqlite3.connect(store_path())) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA,)
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION,)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may write everywhere; nobody may not."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_folder_that_cannot_be_written_is_said_to_be_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryDirectory() as folder:  # that of the test can be entered by root alone
        Path(folder).chmod(0o755)
        monkeypatch.setenv("TILE_AGENT_STATE_DIR", f"{folder}/state")
        add([judgement("one")])
        store_path().chmod(0o644)
        for path, mode in ((store_path(), 0o444), (store_path().parent, 0o555)):
            path.chmod(mode)
        with as_nobody():
            assert [each.key for each in stored()] == ["one"]  # it can still be read
            for use in (lambda: add([judgement("new")]), lambda: forget(entry="exp2"), remove):
                with pytest.raises(UsageError, match="Permission denied") as caught:
                    use()
                assert str(caught.value).endswith("set TILE_AGENT_STATE_DIR to a folder that can")
        assert [each.key for each in stored()] == ["one"]
        store_path().parent.chmod(0o755)


def test_no_secret_gets_into_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_API_KEY", "correct-horse-battery")
    planted = "correct-horse-battery and sk-test-0123456789abcdef0123"
    add([judgement("one", hypothesis=planted, change=f"+ {planted}", params=f'["{planted}"]')])
    content = store_path().read_bytes()
    assert b"correct-horse" not in content
    assert b"0123456789abcdef0123" not in content
    assert content.count(b"[secret removed]") == 6
