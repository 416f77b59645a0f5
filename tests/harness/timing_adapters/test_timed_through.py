"""What the tests time with, as far as their code says it before it runs."""

from __future__ import annotations

import pytest

from agent.harness.processes.fork_server import ForkServer
from tests.harness.timing_adapters.projects import KERNEL
from tests.support.workers import Project, collected

TESTS = """
import kernel
import pytest
import speed
import torch
import triton
from speed import measured
from torch.utils.benchmark import Timer
from triton.testing import do_bench as bench

@pytest.fixture
def timer():
    return lambda run: triton.testing.do_bench_cudagraph(run)

@triton.testing.perf_report([])
def report(n):
    return bench(lambda: kernel.double(torch.ones(n)))

class TestSpeed:
    def timed(self, run):
        return bench(run)

    def test_method(self):
        self.timed(lambda: None)

    @pytest.mark.parametrize("n", [1, 2])
    def test_parameters(self, n):
        bench(lambda: None)

def test_attribute(): triton.testing.do_bench(lambda: None)
def test_name(): bench(lambda: None)
def test_helper(): speed.measured(lambda: None)
def test_helper_by_name(): measured(lambda: None)
def test_fixture(timer): timer(lambda: None)
def test_report(): report.run()
def test_timer(): Timer("1 + 1").timeit()
def test_several():
    bench(lambda: None)
    Timer("1 + 1").timeit()
def test_within():
    from triton.testing import do_bench
    do_bench(lambda: None)
def test_by_the_kernel(): kernel.tuned()
def test_nothing(): assert torch.ones(3).sum() == 3
"""
EXPECTED = {
    "test_method": ["triton.testing.do_bench"],
    "test_parameters[1]": ["triton.testing.do_bench"],
    "test_parameters[2]": ["triton.testing.do_bench"],
    "test_attribute": ["triton.testing.do_bench"],
    "test_name": ["triton.testing.do_bench"],
    "test_helper": ["triton.testing.do_bench"],
    "test_helper_by_name": ["triton.testing.do_bench"],
    "test_fixture": ["triton.testing.do_bench_cudagraph"],
    "test_report": ["triton.testing.do_bench"],
    "test_timer": ["torch.utils.benchmark.Timer"],
    "test_several": ["torch.utils.benchmark.Timer", "triton.testing.do_bench"],
    "test_within": ["triton.testing.do_bench"],
    "test_by_the_kernel": [],
    "test_nothing": [],
}


def test_what_is_named_in_tests_helpers_fixtures_and_reports(
    project: Project, server: ForkServer
) -> None:
    project.write("kernel.py", KERNEL + "\n\ndef tuned():\n    triton.testing.do_bench(print)\n")
    project.write(
        "speed.py",
        "from triton import testing\n\ndef measured(run):\n    return testing.do_bench(run)\n",
    )
    project.write("test_kernel.py", TESTS)
    with project.arm(server) as arm:
        found = {item.name: list(item.through) for item in collected(arm).items}
    assert found == EXPECTED


def test_pytest_benchmark_is_known_by_its_fixture(project: Project, server: ForkServer) -> None:
    pytest.importorskip("pytest_benchmark")
    project.write(
        "test_kernel.py", "import kernel\ndef test_speed(benchmark): benchmark(kernel.answer)\n"
    )
    with project.arm(server) as arm:
        (item,) = collected(arm).items
    assert item.through == ("pytest-benchmark",)


def test_a_fixture_of_that_name_may_be_another(project: Project, server: ForkServer) -> None:
    project.write(
        "test_kernel.py",
        """
        import kernel, pytest

        @pytest.fixture
        def benchmark():
            return lambda run: run()

        def test_speed(benchmark):
            benchmark(kernel.answer)
        """,
    )
    with project.arm(server) as arm:
        (item,) = collected(arm).items
    assert item.through == ()
