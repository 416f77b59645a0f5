"""`torch.utils.benchmark.Timer` inside tests, with the real class."""

from __future__ import annotations

import pytest

from agent.harness.measuring.records import read_records
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import deadline_in
from tests.harness.timing_adapters.projects import HEAD, KERNEL, walk
from tests.support.workers import Project, nodeids

THROUGH = "torch.utils.benchmark.Timer"
TESTS = (
    HEAD
    + """
from torch.utils import benchmark as torch_benchmark
from torch.utils.benchmark import Measurement, Timer

x = torch.randn(1000, device=DEVICE)

def test_timeit():
    timer = Timer("double(x)", globals={"double": double, "x": x}, label="double")
    measured = timer.timeit(50)
    assert isinstance(measured, Measurement)
    assert measured.number_per_run == 50 and 0 < measured.median < 1
    assert measured.task_spec.label == "double"

def test_blocked_autorange():
    measured = torch_benchmark.Timer("f(x)", globals={"f": double, "x": x}).blocked_autorange()
    assert isinstance(measured, Measurement) and measured.times

def test_adaptive_autorange():
    timer = Timer("y = f(x)", setup="pass", globals={"f": double, "x": x})
    assert timer.adaptive_autorange(min_run_time=0.001).iqr >= 0

def test_setup():
    timer = Timer(
        "double_into(x, out)",
        setup="from kernel import double_into; import torch; out = torch.empty_like(x)",
        globals={"x": x},
    )
    assert timer.blocked_autorange().mean > 0

def test_reference():
    assert Timer("x + x", globals={"x": x}).timeit(5).mean > 0
"""
)
ITS_OWN = (
    HEAD
    + """
from torch.utils.benchmark import Timer

def test_callback():
    told = []
    Timer("double(x)", globals={"double": double, "x": torch.ones(8)}).blocked_autorange(
        callback=lambda number, seconds: told.append(number), min_run_time=0.01
    )
    assert told

def test_variables_of_the_setup():
    given = {"double": double, "x": torch.ones(8)}
    timer = Timer("n += 1; double(x)", setup="n = 0", globals=given)
    assert timer.timeit(2).mean > 0
"""
)


@pytest.fixture
def make(project: Project) -> Project:
    project.write("kernel.py", KERNEL)
    return project


def test_its_statement_is_timed_by_ours(make: Project, server: ForkServer) -> None:
    make.write("test_kernel.py", TESTS)
    with make.arm(server) as arm:
        walked = walk(arm)
        timed = arm.run(nodeids(arm), deadline_in(60), timed=True)
    assert walked.bad == []
    assert walked.configs == [("forward", THROUGH)] * 4
    assert walked.stops[-1].nodeid.endswith("test_reference")
    assert [test.text for test in timed.not_passed()] == []
    names = ["test_timeit", "test_blocked_autorange", "test_adaptive_autorange", "test_setup"]
    assert [record.config for record in read_records(timed.tests, "triton")] == names


def test_what_its_statement_computes_is_seen(make: Project, server: ForkServer) -> None:
    make.write("test_kernel.py", TESTS)
    with make.arm(server) as arm:
        arm.begin([node for node in nodeids(arm) if "timeit" in node], deadline_in(60))
        arm.next_stop(deadline_in(60))
        seen = arm.examine(2, deadline_in(60))
        assert seen.launches
        assert [(name, kind) for name, kind in seen.kinds.items()] == [("result", "Tensor")]
        assert len(seen.inputs) == 1


def test_what_it_alone_can_do_it_does(make: Project, server: ForkServer) -> None:
    make.write("test_kernel.py", ITS_OWN)
    with make.arm(server) as arm:
        walked = walk(arm)
    assert (walked.bad, walked.stops) == ([], [])


@pytest.mark.full
def test_outside_of_perf_passes_it_is_torchs(make: Project, server: ForkServer) -> None:
    make.write("test_kernel.py", TESTS)
    done = make.run(server)
    assert [test.text for test in done.not_passed()] == []
