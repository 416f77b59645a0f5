"""The driver on Ray itself, with tasks that only tell: order, hours, and stores that are full."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.environment import Environment
from agent.errors import ExitCode
from agent.fleet.cluster import Driver, connected
from agent.fleet.home import Fleet, FleetOutcome, Home, KernelStanding, branch_of
from agent.fleet.jobs import Ended, KernelJob, Placed, Progressed, ResumePoint, Told
from agent.fleet.summary import to_result_of
from agent.repository import Repository
from tests.fleet.project import STORE_BYTES, Machines
from tests.support.repo import isolate, make_repo

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'tile-agent[fleet]'")

FLEET = "fleet-20260102-030405"
REPOSITORY_BYTES = 2 * 2**20
HERE = Environment((), {}, None, "3.11.9", "Linux")


@pytest.fixture(scope="module")
def address(head: Machines) -> Iterator[str]:
    """Of a cluster with one GPU."""
    node = head.add()
    yield head.address
    head.lose(node)


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


def begun(tmp_path: Path, *names: str, gpu_hours: float | None = None) -> Home:
    """A fleet of kernels in their order; the word of each is the test's folder."""
    files = {"kernel.py": "", "weights.bin": random.Random(1).randbytes(REPOSITORY_BYTES)}
    repository = Repository.open(make_repo(tmp_path, files))
    home = Home(repository, FLEET)
    words = (str(tmp_path),)
    jobs = tuple(
        KernelJob(name, name, "triton", branch_of(FLEET, name), words, ".", "", 1) for name in names
    )
    fleet = Fleet(FLEET, repository.head() or "", HERE, jobs, gpu_hours=gpu_hours)
    home.begin(fleet, [KernelStanding(job.name, job.kernel) for job in jobs])
    return home


def half_an_hour(job: KernelJob, *_: Any) -> Iterator[Told]:
    """A run of that length."""
    time.sleep(0.5)
    yield Placed("node-1", "a GPU")
    yield Ended(int(ExitCode.NO_IMPROVEMENT), "", 1800.0, b"")


def too_much_at_first(job: KernelJob, *_: Any) -> Iterator[Told]:
    """A run that tells more than its node has room for, the first time."""
    yield Placed("node-1", "a GPU")
    seen = Path(job.words[0], "seen")
    if not seen.exists():
        seen.touch()
        yield Progressed(ResumePoint("run-1", "", b"", b"x" * 2 * STORE_BYTES), 1.0)
    yield Ended(int(ExitCode.NO_IMPROVEMENT), "", 2.0, b"")


def filled() -> list[Any]:
    """What fills the store of this machine, once what lay there before has been removed."""
    time.sleep(1)
    held = []
    for size in (5 * REPOSITORY_BYTES, REPOSITORY_BYTES // 2):
        with contextlib.suppress(ray.exceptions.OutOfDiskError):
            while True:
                held.append(ray.put(b"x" * size))
    return held


def test_hours_that_are_spent_begin_no_run_and_more_of_them_do(
    address: str, tmp_path: Path
) -> None:
    home = begun(tmp_path, "d", "c", "b", "a", gpu_hours=1.0)
    said: list[str] = []

    def drive() -> list[str]:
        with connected(address, 1):
            Driver(home, said.append, half_an_hour).drive()
        return [each.name for each in home.standings() if each.outcome is FleetOutcome.ENDED]

    assert drive() == ["c", "d"], "the order is that of the fleet"
    result = to_result_of(home)
    assert (result["exit_code"], result["gpu_h"]) == (ExitCode.STOPPED, 1.0)
    waiting = [row for row in result["kernels"] if row["standing"] == "waiting"]
    assert [row["reason"] for row in waiting] == ["1.00 of 1 GPU hours are spent"] * 2

    home.grant(replace(home.fleet(), gpu_hours=1.5))
    assert drive() == ["b", "c", "d"]
    assert said[-1] == "a: not begun, 1.50 of 1.5 GPU hours are spent"
    home.grant(replace(home.fleet(), gpu_hours=None))
    assert drive() == ["a", "b", "c", "d"]
    assert to_result_of(home)["gpu_h"] == 2.0


def test_runs_wait_for_room_in_a_store_that_is_full(address: str, tmp_path: Path) -> None:
    """In that of the driver's machine, which the repository goes into."""
    home = begun(tmp_path, "a")
    held: list[Any] = []
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        held.clear()

    with connected(address, 1):
        held += filled()
        Driver(home, say, half_an_hour, again_s=0.1).drive()
    assert said[0] == "a: Ray's object store is full; what waits is handed over again and again"
    assert said[1:] == ["a: begins on node-1 (a GPU)", "a: ended, no gain; 1800 s on node-1"]


def test_a_store_that_stays_full_is_a_row(address: str, tmp_path: Path) -> None:
    home = begun(tmp_path, "a", "b")
    said: list[str] = []
    with connected(address, 1):
        held = filled()
        Driver(home, said.append, half_an_hour, again_s=0.01).drive()
        assert held
    assert said[1:] == [f"{name}: not begun, Ray's object store is full" for name in "ab"]
    result = to_result_of(home)
    assert [row["reason"] for row in result["kernels"]] == ["Ray's object store is full"] * 2
    assert result["exit_code"] == ExitCode.STOPPED, "it can be resumed"


def test_a_run_whose_node_has_no_room_goes_on(address: str, tmp_path: Path) -> None:
    home = begun(tmp_path, "a")
    said: list[str] = []
    with connected(address, 1):
        Driver(home, said.append, too_much_at_first).drive()
    assert said == [
        "a: begins on node-1 (a GPU)",
        "a: the object store of its machine was full; it goes on elsewhere",
        "a: begins on node-1 (a GPU)",
        "a: ended, no gain; 2 s on node-1",
    ]
    assert home.standing("a").losses == 1
