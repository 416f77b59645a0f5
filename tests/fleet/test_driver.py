"""The driver on Ray itself, with tasks that only tell: order, and hours that are spent."""

from __future__ import annotations

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
from agent.fleet.jobs import Ended, KernelJob, Placed, Told
from agent.fleet.summary import to_result_of
from agent.repository import Repository
from tests.support.repo import isolate, make_repo

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'tile-agent[fleet]'")

FLEET = "fleet-20260102-030405"
HERE = Environment((), {}, None, "3.11.9", "Linux")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a cluster with one GPU."""
    from ray.cluster_utils import Cluster

    patch = pytest.MonkeyPatch()
    isolate(patch, tmp_path_factory.mktemp("machine"))
    patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    patch.setenv("RAY_AUTH_MODE", "disabled")
    made = Cluster()
    try:
        made.add_node(num_cpus=1, num_gpus=1, include_dashboard=False)
        yield made.address
    finally:
        made.shutdown()
        patch.undo()


def told(job: KernelJob, *_: Any) -> Iterator[Told]:
    """A run of half an hour."""
    time.sleep(0.5)
    yield Placed("node-1", "a GPU")
    yield Ended(int(ExitCode.NO_IMPROVEMENT), "", 1800.0, b"")


def test_hours_that_are_spent_begin_no_run_and_more_of_them_do(
    address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    isolate(monkeypatch, tmp_path)
    repository = Repository.open(make_repo(tmp_path))
    home = Home(repository, FLEET)
    names = ("d", "c", "b", "a")
    jobs = tuple(KernelJob(n, n, "triton", branch_of(FLEET, n), (), ".", "", 1) for n in names)
    fleet = Fleet(FLEET, repository.head() or "", HERE, jobs, gpu_hours=1.0)
    home.begin(fleet, [KernelStanding(job.name, job.kernel) for job in jobs])
    said: list[str] = []

    def drive() -> list[str]:
        with connected(address, 1):
            Driver(home, said.append, told).drive()
        return [each.name for each in home.standings() if each.outcome is FleetOutcome.ENDED]

    assert drive() == ["c", "d"], "the order is that of the fleet"
    result = to_result_of(home)
    assert (result["exit_code"], result["gpu_h"]) == (ExitCode.STOPPED, 1.0)
    waiting = [row for row in result["kernels"] if row["standing"] == "waiting"]
    assert [row["reason"] for row in waiting] == ["1.00 of 1 GPU hours are spent"] * 2

    home.grant(replace(fleet, gpu_hours=1.5))
    assert drive() == ["b", "c", "d"]
    assert said[-1] == "a: not begun, 1.50 of 1.5 GPU hours are spent"
    home.grant(replace(fleet, gpu_hours=None))
    assert drive() == ["a", "b", "c", "d"]
    assert to_result_of(home)["gpu_h"] == 2.0
