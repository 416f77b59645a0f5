"""pytest-benchmark's fixture inside tests, with the real plugin."""

from __future__ import annotations

import pytest

from agent.harness.measuring.records import read_records
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import deadline_in
from tests.harness.timing_adapters.projects import HEAD, KERNEL, walk
from tests.support.workers import Project, nodeids

pytest.importorskip("pytest_benchmark")

THROUGH = "pytest-benchmark"
TESTS = (
    HEAD
    + """
x = torch.randn(1000, device=DEVICE)

def test_called(benchmark):
    assert torch.equal(benchmark(double, x), 2 * x)
    assert len(benchmark.stats.stats.data) >= 1
    assert benchmark.stats.stats.median > 0

def test_pedantic(benchmark):
    result = benchmark.pedantic(double, args=(x,), rounds=3, iterations=2)
    assert torch.equal(result, 2 * x)

def test_keywords(benchmark):
    out = torch.zeros_like(x)
    benchmark.pedantic(double_into, (x,), {"out": out})
    assert torch.equal(out, 2 * x)

def test_twice(benchmark):
    benchmark(double, x)
    with pytest.raises(Exception, match="only be used once"):
        benchmark(double, x)

def test_reference(benchmark):
    assert torch.equal(benchmark(lambda: x + x), 2 * x)
"""
)
WITH_A_SETUP = (
    HEAD
    + """
def test_setup(benchmark):
    made = []

    def arguments():
        made.append(torch.randn(64, device=DEVICE))
        return (made[-1],), {}

    result = benchmark.pedantic(double, setup=arguments, rounds=3)
    assert len(made) == 3 and torch.equal(result, 2 * made[-1])
    assert len(benchmark.stats.stats.data) == 3
"""
)


@pytest.fixture
def make(project: Project) -> Project:
    project.write("kernel.py", KERNEL)
    return project


def test_what_the_fixture_is_given_is_timed_by_ours(make: Project, server: ForkServer) -> None:
    make.write("test_kernel.py", TESTS)
    with make.arm(server) as arm:
        walked = walk(arm)
    assert walked.bad == []
    assert walked.configs == [("forward", THROUGH)] * 4
    assert walked.stops[-1].nodeid.endswith("test_reference")


def test_its_records_are_of_the_kernel_only(make: Project, server: ForkServer) -> None:
    make.write("test_kernel.py", TESTS)
    with make.arm(server) as arm:
        timed = arm.run(nodeids(arm), deadline_in(60), timed=True)
    assert [test.text for test in timed.not_passed()] == []
    ours = [test for test in timed.tests if not test.nodeid.endswith("test_reference")]
    records = read_records(ours, "triton")
    names = ["test_called", "test_pedantic", "test_keywords", "test_twice"]
    assert [record.config for record in records] == names
    assert {record.method for record in records} == {f"CPU wall time; for {THROUGH}"}


def test_outside_of_perf_passes_it_is_the_plugins(make: Project, server: ForkServer) -> None:
    make.write("test_kernel.py", TESTS)
    done = make.run(server)
    assert [test.text for test in done.not_passed()] == []
    assert {test.nodeid.partition("::")[2]: test.properties for test in done.tests}[
        "test_called"
    ] == ()


def test_arguments_made_for_each_call_are_left_to_the_fixture(
    make: Project, server: ForkServer
) -> None:
    make.write("test_kernel.py", WITH_A_SETUP)
    with make.arm(server) as arm:
        walked = walk(arm)
    assert (walked.bad, walked.stops) == ([], [])


def test_what_the_project_asks_of_the_plugin_is_put_aside(
    make: Project, server: ForkServer
) -> None:
    """Tests without the fixture run, and nothing is grouped by what some of them lack."""
    make.write("pytest.ini", "[pytest]\naddopts = --benchmark-only --benchmark-group-by=param:n\n")
    make.write("test_kernel.py", f"{TESTS}\ndef test_right():\n    assert len(double(x)) == 1000\n")
    done = make.run(server)
    assert [test.text for test in done.not_passed()] == []
    assert "test_right" in {test.nodeid.partition("::")[2] for test in done.tests}
