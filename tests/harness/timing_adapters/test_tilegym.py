"""Helpers with the names and parameters of TileGym's, in a `tests/common.py` of a project."""

from __future__ import annotations

import pytest

from agent.harness.measuring.records import read_records
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import deadline_in
from tests.harness.timing_adapters.projects import HEAD, KERNEL, walk
from tests.support.workers import Project, nodeids

PARAMETERS = "fn, warmup=0, rep=5, min_rep=10, initial_rep=5, grad_to_none=None, fast_flush=True"
COMMON = f"""
def benchmark_fn({PARAMETERS}, setup_fn=None):
    for _ in range(2):
        if setup_fn is not None:
            setup_fn()
        fn()
    return {{"median": 0.25, "mean": 0.5, "by": "TileGym"}}

def benchmark_fn_cudagraph({PARAMETERS}):
    raise RuntimeError("needs CUDA")

def benchmark_fn_cupti({PARAMETERS}, kernel_filter=None):
    raise RuntimeError("needs CUPTI")

def benchmark(fn, mode="forward", use_cudagraph=False, use_cupti=False, setup_fn=None):
    timed = benchmark_fn
    if use_cudagraph or use_cupti:
        timed = benchmark_fn_cudagraph if use_cudagraph else benchmark_fn_cupti
    results = {{"forward": timed(fn, **({{"setup_fn": setup_fn}} if setup_fn else {{}}))}}
    if mode == "auto":
        bwd_fn = lambda: fn()
        results["backward"] = timed(bwd_fn)
    return results

def benchmark_framework(framework_name, framework_fn, **benchmark_kwargs):
    return {{framework_name: benchmark(framework_fn, **benchmark_kwargs)}}
"""
TESTS = (
    HEAD
    + """
from tests import common
from tests.common import benchmark

@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("framework", ["pytorch", "triton"])
def test_perf(framework, graph, record_property):
    x = torch.randn(100, device=DEVICE)
    run = (lambda: double(x)) if framework == "triton" else (lambda: 2 * x)
    result = common.benchmark_framework(framework, run, use_cudagraph=graph)
    figures = result[framework]["forward"]
    assert figures["min"] <= figures["median"] <= figures["max"] and figures["nrep"] >= 1
    assert {"mean", "std", "rel_std", "peak_mem_mb"} <= set(figures)
    record_property("benchmark", result)

def test_perf_backward():
    x = torch.randn(100, device=DEVICE)
    result = benchmark(lambda: double(x), mode="auto", use_cupti=True)
    assert set(result) == {"forward", "backward"}
"""
)
BENCH_UTILS = """
def profile_with_l2flush(fn, warmup=20, rep=100):
    raise RuntimeError("needs CUPTI")
"""
SCRIPT = (
    HEAD
    + """
from bench_utils import profile_with_l2flush

@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["n"], x_vals=[64, 100], line_arg="backend", line_vals=["triton", "torch"],
        line_names=["Triton", "PyTorch"], plot_name="double", args={},
    )
)
def bench_double(n, backend):
    x = torch.randn(n, device=DEVICE)
    run = (lambda: double(x)) if backend == "triton" else (lambda: 2 * x)
    return 2 * x.numel() * 1e-9 / (profile_with_l2flush(run) * 1e-3)

def test_perf_double():
    bench_double.run(print_data=True)
"""
)
WITH_A_SETUP = (
    HEAD
    + """
from tests.common import benchmark_framework

def test_perf_setup():
    x = torch.randn(100, device=DEVICE)
    result = benchmark_framework("triton", lambda: double(x), setup_fn=lambda: None)
    assert result["triton"]["forward"]["by"] == "TileGym"
"""
)


@pytest.fixture
def make(project: Project) -> Project:
    project.write("kernel.py", KERNEL)
    project.write("tests/__init__.py", "")
    project.write("tests/common.py", COMMON)
    return project


def test_its_helpers_time_by_ours(make: Project, server: ForkServer) -> None:
    make.write("test_kernel.py", TESTS)
    with make.arm(server) as arm:
        walked = walk(arm)
        timed = arm.run(nodeids(arm), deadline_in(60), timed=True)
    assert walked.bad == []
    labels = ["forward", "forward", "forward", "backward"]
    assert walked.configs == [(label, "TileGym's benchmark") for label in labels]
    assert [test.text for test in timed.not_passed()] == []
    assert [record.config for record in read_records(timed.tests, "triton")] == [
        "test_perf[triton-False]",
        "test_perf[triton-True]",
        "test_perf_backward",
        "test_perf_backward backward",
    ]


def test_its_benchmarks_time_by_ours(make: Project, server: ForkServer) -> None:
    make.write("bench_utils.py", BENCH_UTILS)
    make.write("test_kernel.py", SCRIPT)
    with make.arm(server) as arm:
        walked = walk(arm)
    assert walked.bad == []
    through = "TileGym's profile_with_l2flush"
    assert walked.configs == [(f"n={n} backend=triton", through) for n in (64, 100)]


def test_helpers_that_a_test_imports_late_time_by_ours_too(
    make: Project, server: ForkServer
) -> None:
    body = "def test_perf():\n    from tests.common import benchmark\n    x = torch.ones(8)\n"
    make.write("test_kernel.py", HEAD + body + "    benchmark(lambda: double(x))\n")
    with make.arm(server) as arm:
        walked = walk(arm)
    assert walked.bad == []
    assert walked.configs == [("forward", "TileGym's benchmark")]


def test_a_candidate_that_replaces_them_is_seen(make: Project, server: ForkServer) -> None:
    make.write("test_kernel.py", TESTS)
    cheat = """

def double(x):
    import sys
    common = sys.modules["tests.common"]
    common.benchmark_fn = lambda *_, **__: {"median": 1e-9}
    return double_into(x, torch.empty_like(x))
"""
    make.write("kernel.py", KERNEL + cheat)
    assert make.run(server).replaced == ("tests.common.benchmark_fn",)


def test_what_runs_before_each_call_is_left_to_it(make: Project, server: ForkServer) -> None:
    make.write("test_kernel.py", WITH_A_SETUP)
    with make.arm(server) as arm:
        walked = walk(arm)
    assert (walked.bad, walked.stops) == ([], [])


def test_another_common_is_left_alone(make: Project, server: ForkServer) -> None:
    make.write("tests/common.py", "def benchmark_fn(fn, times):\n    return [fn()] * times\n")
    body = HEAD + "from tests.common import benchmark_fn\n"
    body += (
        "def test_perf():\n    assert len(benchmark_fn(lambda: double(torch.ones(8)), 2)) == 2\n"
    )
    make.write("test_kernel.py", body)
    with make.arm(server) as arm:
        walked = walk(arm)
    assert (walked.bad, walked.stops) == ([], [])
