"""How the time of a look is shared out among screens that follow each other."""

from __future__ import annotations

import itertools
import textwrap
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.frozen_tests import TestPlan
from agent.harness.measuring import line_ups
from agent.harness.measuring.block_timing import BlockTiming
from agent.harness.processes.worker_session import deadline_in
from agent.measuring.screening import Look
from tests.support.workers import Project, start_server

PLAN = TestPlan(("test_kernel.py",), (), ("test_kernel.py::test_perf",))
SECONDS = 100.0


@pytest.mark.parametrize("last", [False, True])
def test_half_of_the_time_is_kept_for_those_that_follow(
    monkeypatch: pytest.MonkeyPatch, last: bool
) -> None:
    """In a sweep those are the pairs of whom no screen saw; after a scouting there is nobody."""
    given_s: list[float] = []

    class Noted:
        def __init__(self, *_: Any, **__: Any) -> None:
            """No workers: what is looked at here is the clock."""

        def holds(self, names: Collection[str]) -> bool:
            return False

        def look(self, names: Collection[str], _: Any, deadline: float) -> Mapping[str, Look]:
            given_s.append(deadline - time.monotonic())
            return {name: Look(0.0, 1.0) for name in names}

        def close(self) -> None:
            """Nothing to end."""

    monkeypatch.setattr(line_ups, "InterleavedScreen", Noted)
    names = [f"v{n}" for n in range(3 * line_ups.AT_ONCE)]
    any_: Any = object()
    with line_ups.LineUps(
        any_,
        PLAN,
        dict.fromkeys([line_ups.INCUMBENT, *names], any_),
        lambda: Path("log"),
        lambda _: BlockTiming(),
        {},
    ) as looks:
        found = looks.look(names, 2, time.monotonic() + SECONDS, last=last)
    assert set(found) == set(names)
    assert given_s == [
        pytest.approx(SECONDS / 2, abs=1),
        pytest.approx(SECONDS / 2, abs=1),
        pytest.approx(SECONDS if last else SECONDS / 2, abs=1),
    ]


NOTING = """
    import os, pathlib, time

    def note(what):
        pathlib.Path(os.environ["SEEN"]).open("a").write(f"{NAME} {what} {time.monotonic()}\\n")

    note("imports")
    time.sleep(IMPORT_S)
    note("collected")
    called = []

    def launch():
        if not called:
            note("launches")
        called.append(1)
        time.sleep(0.01)
"""
TEST = """
    from kernel import launch

    def test_perf(tile_bench):
        tile_bench(launch)
"""
TIMING = BlockTiming(block_ms=10, settle_ms=2, least_samples=2, quads=2)


def noted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    held_share: float | None,
    import_s: float,
    enough: line_ups.Enough | None = None,
) -> dict[tuple[str, str], list[float]]:
    """Who did what when, of one variant after the other, the second of which takes so long."""
    monkeypatch.setattr(line_ups, "AT_ONCE_WITH_ROOM", 1)
    monkeypatch.setattr(line_ups, "AT_ONCE", 1)
    seen = tmp_path / "seen"
    seen.touch()
    seconds = {line_ups.INCUMBENT: 0.0, "first": 0.0, "second": import_s}
    logs = (tmp_path / f"{n}.log" for n in itertools.count())
    with start_server(tmp_path / "log", write=[seen], SEEN=str(seen)) as server:
        checkouts = {}
        for name, took_s in seconds.items():
            told = f"NAME, IMPORT_S = {name or 'incumbent'!r}, {took_s}\n"
            kernel = told + textwrap.dedent(NOTING)
            project = Project(tmp_path / (name or "incumbent"), textwrap.dedent(TEST), kernel)
            checkouts[name] = project.checkout()
        with line_ups.LineUps(
            server,
            PLAN,
            checkouts,
            lambda: next(logs),
            lambda _: TIMING,
            {},
            configs=1,
            held_share=held_share,
        ) as looks:
            found = looks.look(["first", "second"], 2, deadline_in(60), last=True, enough=enough)
    assert set(found) == {"first", "second"}
    events: dict[tuple[str, str], list[float]] = {}
    for line in seen.read_text().splitlines():
        name, what, at_s = line.split()
        events.setdefault((name, what), []).append(float(at_s))
    return events


def test_the_next_group_collects_before_anything_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = noted(tmp_path, monkeypatch, 0.01, 0.3)
    (collected,) = events["second", "collected"]
    assert collected < events["first", "launches"][0]
    assert len(events["incumbent", "imports"]) == 2


def test_a_next_group_that_takes_long_is_started_anew_in_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = noted(tmp_path, monkeypatch, 0.01, 4.0)
    ended, again = events["second", "imports"]
    assert ended < events["first", "launches"][0] < again
    (collected,) = events["second", "collected"]
    assert collected > again


def test_it_collects_in_its_turn_where_nobody_knows_whether_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = noted(tmp_path, monkeypatch, None, 0.0)
    (imports,) = events["second", "imports"]
    assert events["first", "launches"][0] < imports


def test_it_collects_in_its_turn_where_the_first_group_may_be_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = noted(tmp_path, monkeypatch, 0.01, 0.0, enough=lambda *_: False)
    (imports,) = events["second", "imports"]
    assert events["first", "launches"][0] < imports
