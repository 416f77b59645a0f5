"""What only a GPU can show. Skipped, with the reason, on a machine without one."""

from __future__ import annotations

import re
import shutil
import statistics
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from agent.cli.live import LiveView, telemetry
from agent.environment import probe
from agent.harness.measuring.gpu import GpuWatch, exclusive
from agent.state import Run
from agent.transitions import advance
from tests.support.history import STARTED
from tests.support.project import tile_agent
from tests.support.repo import git, isolate, make_repo

ROOT = Path(__file__).parent.parent
GPU = probe().gpu

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(GPU is None, reason="needs an NVIDIA GPU, and NVML sees none"),
]


def test_events_and_graph_agree_on_a_kernel_of_middling_length() -> None:
    import torch

    from tile_agent_pytest.bench import OnGpu, open_sampler
    from tile_agent_pytest.graphs import AsGraph

    x = torch.randn(8192, 8192, device="cuda")
    events, estimate_ms = open_sampler(lambda: torch.mul(x, 2.0, out=x))
    assert isinstance(events, OnGpu)
    graph, _ = open_sampler(lambda: torch.mul(x, 1.0, out=x), AsGraph.__name__)
    cold, warm = (statistics.median(s.sample(25)) for s in (events, graph))
    assert 0.5 * cold < warm < 1.5 * cold
    assert estimate_ms > 0.02


def test_a_short_kernel_is_timed_as_a_graph() -> None:
    import torch

    from tile_agent_pytest.bench import open_sampler
    from tile_agent_pytest.graphs import AsGraph

    x = torch.randn(1024, device="cuda")
    sampler, estimate_ms = open_sampler(lambda: torch.mul(x, 1.0, out=x))
    assert isinstance(sampler, AsGraph)
    assert 0 < estimate_ms < 0.02


def test_launches_of_a_short_kernel_read_memory_and_the_last_one_the_tests_own() -> None:
    """4 MiB in and out: fifty launches on the same would find most of it in the cache."""
    import torch

    from tile_agent_pytest.bench import open_sampler
    from tile_agent_pytest.graphs import AsColdGraph, AsGraph

    x = torch.randn(1 << 20, device="cuda")
    given, at = x.clone(), x.data_ptr()
    results: list[torch.Tensor] = []

    def call() -> torch.Tensor:
        results[:] = [torch.mul(x, 2.0)]
        return results[0]

    cold, _ = open_sampler(call)
    assert isinstance(cold, AsColdGraph)
    cold_ms = statistics.median(cold.sample(25))
    assert torch.equal(results[0], 2 * given)
    assert (x.data_ptr(), torch.equal(x, given)) == (at, True)
    x.fill_(3.0)
    cold.sample(1)
    assert torch.all(results[0] == 6.0)
    warm, _ = open_sampler(call, AsGraph.__name__)
    assert statistics.median(warm.sample(25)) < cold_ms
    little = torch.randn(1024, device="cuda")
    few, _ = open_sampler(lambda: torch.mul(little, 1.0))
    assert isinstance(few, AsGraph) and not isinstance(few, AsColdGraph)


def test_what_a_graph_cannot_hold_is_timed_without_the_hosts_time() -> None:
    """A backward pass of short kernels: the host needs longer for it than the GPU."""
    import torch

    from tile_agent_pytest.bench import OnGpu, open_sampler

    x = torch.randn(4096, device="cuda", requires_grad=True)

    def step() -> None:
        (x * 2.0).square().sum().backward()

    sampler, estimate_ms = open_sampler(step)
    assert isinstance(sampler, OnGpu)
    begin = time.perf_counter()
    for _ in range(100):
        step()
    torch.cuda.synchronize()
    assert estimate_ms < 0.7 * (time.perf_counter() - begin) * 10
    waiting, _ = open_sampler(lambda: x.sum().item())
    assert isinstance(waiting, OnGpu)
    y = torch.randn(1024, device="cuda")
    waiting, _ = open_sampler(lambda: (torch.mul(y, 2.0, out=y), torch.cuda.synchronize()))
    assert isinstance(waiting, OnGpu)
    assert torch.rand(3, device="cuda").sum().item() > 0  # no capture was left open


def test_a_call_that_keeps_the_host_says_so() -> None:
    """By the parent's clock it takes as long as the host, whatever the GPU does."""
    import torch

    from tile_agent_pytest.bench import OnGpu

    x = torch.randn(4096, 4096, device="cuda")

    def call() -> None:
        torch.mul(x, 1.0, out=x)
        end = time.perf_counter() + 3e-4
        while time.perf_counter() < end:
            pass

    assert OnGpu(call).keeps_host
    assert not OnGpu(lambda: torch.mul(x, 1.0, out=x)).keeps_host


def test_the_first_call_of_an_order_does_not_wait_for_the_host() -> None:
    """On inputs of its own it keeps the host for longer, which is no time of the kernel."""
    import torch

    from tile_agent_pytest.bench import OnGpu

    x = torch.randn(4096, 4096, device="cuda")
    delays_s = [0.0]

    def call() -> None:
        time.sleep(delays_s.pop() if len(delays_s) > 1 else delays_s[0])
        torch.mul(x, 1.0, out=x)

    sampler = OnGpu(call)
    delays_s.append(3e-4)
    first, *others = sampler.sample(9)
    assert first < 1.5 * statistics.median(others)


def test_the_watch_reads_the_gpu_and_sees_no_stranger(tmp_path: Path) -> None:
    assert GPU is not None
    watch = GpuWatch(GPU)
    seen = watch.look()
    watch.close()
    assert seen is not None
    assert seen.sm_mhz > 0 and seen.power_w > 0
    with exclusive(GPU, tmp_path, print):
        assert list(tmp_path.glob("*.lock"))


def test_the_view_of_a_run_reads_its_gpu(tmp_path: Path) -> None:
    assert GPU is not None
    environment = {**STARTED.environment, "gpus": [asdict(GPU)]}
    run = advance(Run(), replace(STARTED, environment=environment))
    with telemetry(run) as look:
        text = LiveView(run, tmp_path, look).draw(80, 24)
    assert re.search(r"GPU .*\d+ MHz, \d+ C, \d+ W", text)


@pytest.mark.full
@pytest.mark.gpu_run
@pytest.mark.parametrize("example", ["triton_softmax", "cutile_softmax"])
def test_a_run_on_an_example(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(monkeypatch, tmp_path)
    repo = make_repo(tmp_path, {"README": ""})
    shutil.copytree(ROOT / "examples" / example, repo, dirs_exist_ok=True)
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "example")
    end = tile_agent(repo, "run", "--kernel", "softmax.py", "--json", "--max-iterations", "1")
    assert end.code in (0, 3, 5), end.err
    assert end.json["rows"][0]["status"] == "keep"
    if example == "cutile_softmax":
        assert end.json["speedup"] > 2
