"""Every adapter on a GPU, where the originals can run, too."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.environment import probe
from agent.harness.measuring.records import read_records
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import deadline_in
from tests.harness.timing_adapters import (
    test_pytest_benchmark,
    test_tilegym,
    test_torch_benchmark,
    test_triton_testing,
)
from tests.harness.timing_adapters.projects import HEAD, KERNEL, walk
from tests.support.workers import Project, nodeids, start_server

GPU = probe().gpu

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(GPU is None, reason="needs an NVIDIA GPU, and NVML sees none"),
]
PROJECTS = {
    "do_bench": test_triton_testing.ALL_MODES,
    "beside torch": test_triton_testing.BESIDE_TORCH,
    "perf_report": test_triton_testing.REPORT,
    "pytest-benchmark": test_pytest_benchmark.TESTS,
    "pytest-benchmark, setup": test_pytest_benchmark.WITH_A_SETUP,
    "torch": test_torch_benchmark.TESTS,
    "TileGym": test_tilegym.TESTS,
    "TileGym's benchmarks": test_tilegym.SCRIPT,
}
AGREES = (
    HEAD
    + """
@pytest.mark.parametrize("n", [10**6, 3 * 10**7])
def test_speed(n):
    x = torch.randn(n, device=DEVICE)
    ms = triton.testing.do_bench(lambda: double(x), return_mode="median")
    print(f"median {ms}")
"""
)
WAITS = (
    HEAD
    + """
def test_waiting(benchmark):
    x = torch.randn(1000, device=DEVICE)

    def run():
        double(x)
        torch.cuda.synchronize()

    benchmark(run)
"""
)
TUNED = """

@triton.autotune([triton.Config({"BLOCK": b}) for b in (64, 256)], key=["n"])
@triton.jit
def tuned_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * 2.0, mask=mask)


def tuned(x):
    y = torch.empty_like(x)
    tuned_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y
"""

OF_A_TUNED_ONE = (
    HEAD
    + """
from kernel import tuned

def test_tuned():
    x = torch.randn(999, device=DEVICE)
    triton.testing.do_bench(lambda: tuned(x))
"""
)


@pytest.fixture(scope="module")
def compiling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """A server whose workers compile for the GPU."""
    log = tmp_path_factory.mktemp("server") / "server.log"
    with start_server(log, python=sys.executable) as server:
        yield server


@pytest.fixture
def on_gpu(tmp_path: Path) -> Project:
    project = Project(tmp_path / "project", kernel=KERNEL)
    project.write("tests/__init__.py", "")
    project.write("tests/common.py", test_tilegym.COMMON)
    project.write("bench_utils.py", test_tilegym.BENCH_UTILS)
    return project


@pytest.mark.parametrize("name", PROJECTS)
def test_stepped_timed_and_alone(on_gpu: Project, compiling: ForkServer, name: str) -> None:
    on_gpu.write("test_kernel.py", PROJECTS[name])
    with on_gpu.arm(compiling, timeout_s=120) as arm:
        walked = walk(arm)
        timed = arm.run(nodeids(arm), deadline_in(120), timed=True)
        if not name.startswith("TileGym"):  # whose helpers stand for more than they do
            alone = arm.run(nodeids(arm), deadline_in(120))
            assert [test.text for test in alone.not_passed()] == []
    assert walked.bad == []
    methods = {prepared.method.partition(" ")[0] for prepared in walked.prepared}
    assert methods <= {"", "OnGpu", "AsGraph", "AsColdGraph"}
    assert [test.text for test in timed.not_passed()] == []


def test_what_is_recorded_is_what_triton_says(on_gpu: Project, compiling: ForkServer) -> None:
    on_gpu.write("test_kernel.py", AGREES)
    with on_gpu.arm(compiling, timeout_s=120) as arm:
        timed = arm.run(nodeids(arm), deadline_in(120), timed=True)
        alone = arm.run(nodeids(arm), deadline_in(120))
    large = read_records(timed.tests, "triton")[1]
    said = float(alone.tests[-1].stdout.split("median ")[1].split()[0])
    assert large.latency_ms == pytest.approx(said, rel=0.15)


def test_what_waits_for_the_gpu_is_timed_by_events(on_gpu: Project, compiling: ForkServer) -> None:
    """It cannot be captured, short as it may be."""
    on_gpu.write("test_kernel.py", WAITS)
    with on_gpu.arm(compiling, timeout_s=120) as arm:
        walked = walk(arm)
        timed = arm.run(nodeids(arm), deadline_in(120), timed=True)
    assert walked.bad == []
    assert len(walked.configs) == 1
    assert [test.text for test in timed.not_passed()] == []


def test_a_tuner_times_its_configs_itself(on_gpu: Project, compiling: ForkServer) -> None:
    on_gpu.write("kernel.py", KERNEL + TUNED)
    body = (
        HEAD
        + "from kernel import tuned\n\ndef test_tuned():\n    x = torch.randn(999, device=DEVICE)\n"
    )
    on_gpu.write("test_kernel.py", body + "    triton.testing.do_bench(lambda: tuned(x))\n")
    with on_gpu.arm(compiling, timeout_s=120) as arm:
        walked = walk(arm)
    assert walked.bad == []
    assert [stop.config for stop in walked.stops] == ["forward"]
