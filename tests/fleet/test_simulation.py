"""The recorded runs that a simulation repeats, and how good the order could be at best."""

from __future__ import annotations

import heapq

import pytest

from agent.fleet.cluster import connected
from agent.fleet.jobs import KernelJob
from agent.fleet.order import ordered
from benchmarks.fleet_simulation import recorded_s, simulate
from tests.fleet.project import Machines


@pytest.mark.parametrize(("kernels", "gpus", "least"), [(16, 8, 7.0), (200, 64, 55.0)])
def test_longest_first_keeps_the_gpus_busy(kernels: int, gpus: int, least: float) -> None:
    """Each GPU takes the next of the list when it is free, as Ray's do; nothing else costs."""
    recorded = recorded_s()
    assert len(recorded) == 22
    lengths_s = {f"k{n}": recorded[n % len(recorded)] for n in range(kernels)}
    jobs = [KernelJob(k, k, "triton", "b", (), ".", "", 1) for k in lengths_s]
    free_s = [0.0] * gpus
    for job in ordered(jobs, {}, lengths_s):
        heapq.heapreplace(free_s, free_s[0] + lengths_s[job.kernel])
    assert sum(lengths_s.values()) / max(free_s) >= least


def test_a_simulated_fleet_takes_no_less_than_its_runs_would(cluster: Machines) -> None:
    cluster.add(2)
    lengths_s = recorded_s()[:4]
    with connected(cluster.address, 0):
        found = simulate(lengths_s, 200.0, longest=True)
    assert found.total_s == sum(lengths_s)
    assert max(found.longest_s, found.total_s / 2) <= found.makespan_s
    assert 0 < found.driver_cores < 1
