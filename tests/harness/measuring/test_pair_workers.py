"""Workers of the pairs that follow, which begin while one prepares."""

from __future__ import annotations

import itertools
import os
import textwrap
import time
from pathlib import Path

import pytest

from agent.frozen_tests import TestPlan
from agent.harness.measuring.pair_workers import MOST_AHEAD, PairWorkers, most_ahead
from agent.harness.processes.confinement import Confinement
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.results import Pass, Stop
from agent.harness.processes.worker_session import deadline_in
from tests.support.workers import Project, descendants, eventually

NODEID = "test_kernel.py::test_perf"
PLAN = TestPlan(("test_kernel.py",), (), (NODEID,))
KERNEL = """
    from pathlib import Path

    def launch():
        with open(Path(__file__).with_name("launches"), "a") as file:
            print(".", file=file)
"""
STEPPED = """
    from pathlib import Path
    from kernel import launch

    def test_perf(tile_bench):
        with open(Path(__file__).with_name("inputs"), "a") as file:
            print(".", file=file)
        assert not Path(__file__).with_name("full").exists(), "out of memory"
        tile_bench(launch)
"""


@pytest.fixture
def checkouts(server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Project]:
    (tmp_path / "logs").mkdir()
    monkeypatch.setattr(server, "confinement", Confinement(write=(tmp_path,)))  # what they count
    texts = textwrap.dedent(STEPPED), textwrap.dedent(KERNEL)
    return [Project(tmp_path / name, *texts) for name in ("one", "other")]


def workers_of(server: ForkServer, checkouts: list[Project], logs: Path) -> PairWorkers:
    ours, theirs = (project.checkout() for project in checkouts)
    arms = {True: ours, False: theirs}
    return PairWorkers({True: server, False: server}, arms, PLAN, logs, itertools.count(1))


def lines(project: Project, name: str) -> int:
    file = project.checkout().root / name
    return len(file.read_text().splitlines()) if file.exists() else 0


@pytest.mark.parametrize("call", [True, False])
def test_they_wait_with_inputs_and_a_first_call(
    server: ForkServer, checkouts: list[Project], tmp_path: Path, call: bool
) -> None:
    workers = workers_of(server, checkouts, tmp_path / "logs")
    before = descendants(os.getpid())
    assert workers.none_wait
    assert workers.start(2) == 2
    assert not workers.none_wait
    workers.await_waiting(deadline_in(60), begin=True, call=call)
    assert workers.ahead == 2
    assert [lines(project, "inputs") for project in checkouts] == [2, 2]
    assert [lines(project, "launches") for project in checkouts] == [2 * call, 2 * call]
    with workers.taken() as pair:
        assert [stop.nodeid for stop in pair.stops.values() if isinstance(stop, Stop)] == 2 * [
            NODEID
        ]
        assert workers.ahead == 1
        for arm in pair.arms.values():
            arm.go()
            done = arm.next_stop(deadline_in(60))
            assert isinstance(done, Pass)
            assert not done.not_passed()
    workers.forget_waiting()
    assert eventually(lambda: descendants(os.getpid()) <= before)


def test_where_a_test_fails_beside_others_the_next_pairs_begin_alone(
    server: ForkServer, checkouts: list[Project], tmp_path: Path
) -> None:
    """It may have lacked memory that it has alone."""
    workers = workers_of(server, checkouts, tmp_path / "logs")
    before = descendants(os.getpid())
    full = checkouts[1].checkout().root / "full"
    full.touch()
    workers.start(2)
    workers.await_waiting(deadline_in(60), begin=True, call=True)
    assert (workers.ahead, workers.beside) == (0, False)
    assert eventually(lambda: descendants(os.getpid()) <= before)
    full.unlink()
    with workers.taken() as pair:
        assert not pair.stops
        for arm in pair.arms.values():
            arm.begin(PLAN.perf, deadline_in(60))
            assert isinstance(arm.next_stop(deadline_in(60)), Stop)


def test_a_worker_that_hangs_is_given_up_at_the_deadline(
    server: ForkServer, checkouts: list[Project], tmp_path: Path
) -> None:
    kernel = checkouts[1].checkout().root / "kernel.py"
    kernel.write_text("import time\ndef launch(): time.sleep(600)\n")
    workers = workers_of(server, checkouts, tmp_path / "logs")
    before = descendants(os.getpid())
    workers.start(1)
    began = time.monotonic()
    workers.await_waiting(deadline_in(5), begin=True, call=True)
    assert time.monotonic() - began < 60
    assert workers.ahead == 0
    assert eventually(lambda: descendants(os.getpid()) <= before)


@pytest.mark.parametrize(("processors", "pairs"), [(1, 1), (4, 1), (8, 3), (64, MOST_AHEAD)])
def test_as_many_as_there_are_processors_for(
    monkeypatch: pytest.MonkeyPatch, processors: int, pairs: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)))
    assert most_ahead() == pairs
