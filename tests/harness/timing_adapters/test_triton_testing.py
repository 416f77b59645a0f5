"""`triton.testing` inside tests: what is timed, by whom, and what the tests get back."""

from __future__ import annotations

import pytest

from agent.harness.measuring.records import RecordError, read_records
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import deadline_in
from tests.harness.timing_adapters.projects import HEAD, KERNEL, walk
from tests.support.workers import Project, nodeids

THROUGH = "triton.testing.do_bench"
ONE = (
    HEAD
    + """
def test_speed():
    x = torch.randn(1000, device=DEVICE)
    ms = triton.testing.do_bench(lambda: double(x))
    assert isinstance(ms, float) and ms > 0
"""
)
ALL_MODES = (
    HEAD
    + """
from triton.testing import do_bench as timed_by_triton

x = torch.randn(1000, device=DEVICE)

@pytest.mark.parametrize("mode", ["mean", "median", "min", "max"])
def test_mode(mode):
    assert isinstance(timed_by_triton(lambda: double(x), 5, 10, return_mode=mode), float)

def test_all():
    samples = timed_by_triton(lambda: double(x), rep=10, return_mode="all")
    assert len(samples) >= 3 and all(sample > 0 for sample in samples)

def test_quantiles():
    median, low, high = timed_by_triton(lambda: double(x), quantiles=[0.5, 0.2, 0.8])
    assert low <= median <= high
    assert isinstance(timed_by_triton(lambda: double(x), quantiles=(0.5,)), float)

def test_cudagraph():
    ms = triton.testing.do_bench_cudagraph(lambda: double(x), rep=5, quantiles=[0.5, 0.8])
    assert len(ms) == 2

def test_gradients():
    weight = torch.ones(1000, device=DEVICE, requires_grad=True)

    def run():
        double(x)
        weight.sum().backward()

    timed_by_triton(run, grad_to_none=[weight])
    assert torch.equal(weight.grad, torch.ones(1000, device=DEVICE))
"""
)
BESIDE_TORCH = (
    HEAD
    + """
def test_beside_torch():
    x = torch.randn(100_000, device=DEVICE)
    theirs = triton.testing.do_bench(lambda: x + x)
    for n in (64, 1000):
        part = x[:n]
        ours = triton.testing.do_bench(lambda: double(part))
        assert ours > 0 and theirs > 0
"""
)
REPORT = (
    HEAD
    + """
def test_report():
    @triton.testing.perf_report(
        triton.testing.Benchmark(
            x_names=["n"], x_vals=[64, 128], line_arg="provider", line_vals=["torch", "triton"],
            line_names=["torch", "triton"], plot_name="", args={"dtype": torch.float32},
        )
    )
    def bench(n, provider, dtype):
        x = torch.randn(n, dtype=dtype, device=DEVICE)
        run = (lambda: double(x)) if provider == "triton" else (lambda: 2 * x)
        return triton.testing.do_bench(run, quantiles=[0.5, 0.2, 0.8])

    table = bench.run(return_df=True)
    assert len(table) == 2
    assert (table.iloc[:, 1:] > 0).all().all()
"""
)


@pytest.fixture
def make(project: Project) -> Project:
    project.write("kernel.py", KERNEL)
    return project


def test_what_is_asked_of_do_bench_is_timed_by_ours(make: Project, server: ForkServer) -> None:
    make.write("test_kernel.py", ONE)
    with make.arm(server) as arm:
        walked = walk(arm)
    assert walked.bad == []
    assert walked.configs == [("forward", THROUGH)]


def test_every_way_to_ask_gets_the_answer_it_expects(make: Project, server: ForkServer) -> None:
    make.write("test_kernel.py", ALL_MODES)
    with make.arm(server) as arm:
        walked = walk(arm)
        timed = arm.run(nodeids(arm), deadline_in(60), timed=True)
    assert walked.bad == []
    assert len(walked.configs) == 9
    assert [test.text for test in timed.not_passed()] == []


def test_a_timing_of_the_reference_is_no_config(make: Project, server: ForkServer) -> None:
    make.write("test_kernel.py", BESIDE_TORCH)
    with make.arm(server) as arm:
        walked = walk(arm)
        timed = arm.run(nodeids(arm), deadline_in(60), timed=True)
    assert walked.bad == []
    assert [stop.config for stop in walked.stops] == ["forward", "#2", "#3"]
    assert walked.configs == [("#2", THROUGH), ("#3", THROUGH)]
    records = read_records(timed.tests, "triton")
    assert [record.config for record in records] == ["test_beside_torch #2", "test_beside_torch #3"]
    assert records[0].method == "CPU wall time; for triton.testing.do_bench"


def test_nothing_is_recorded_where_nothing_launches(make: Project, server: ForkServer) -> None:
    only_torch = HEAD + "def test_torch():\n    triton.testing.do_bench(lambda: torch.ones(9))\n"
    make.write("test_kernel.py", only_torch)
    with make.arm(server) as arm:
        timed = arm.run(nodeids(arm), deadline_in(60), timed=True)
    assert timed.not_passed() == ()
    with pytest.raises(RecordError, match="do_bench launches no kernel of the file"):
        read_records(timed.tests, "triton")


def test_the_configs_of_a_report_bear_their_names(make: Project, server: ForkServer) -> None:
    pytest.importorskip("matplotlib")
    make.write("test_kernel.py", REPORT)
    with make.arm(server) as arm:
        walked = walk(arm)
    assert walked.bad == []
    assert [stop.config for stop in walked.stops] == [
        "n=64 provider=torch",
        "n=64 provider=triton",
        "n=128 provider=torch",
        "n=128 provider=triton",
    ]
    assert walked.configs == [("n=64 provider=triton", THROUGH), ("n=128 provider=triton", THROUGH)]


@pytest.mark.parametrize("asked", ["", "return_df=True"])
def test_benchmarks_of_one_report_are_told_apart_by_what_differs(
    make: Project, server: ForkServer, asked: str
) -> None:
    both = """        [triton.testing.Benchmark(
            x_names=["n"], x_vals=[64], line_arg="provider", line_vals=["triton"],
            line_names=["triton"], plot_name="", args={"same": 1, "dtype": dtype},
        ) for dtype in (torch.float32, torch.float16)]
    )
    def bench(n, provider, dtype, same):"""
    head, _, rest = REPORT.partition("        triton.testing.Benchmark(")
    _, _, body = rest.partition("    def bench(n, provider, dtype):")
    text = f"{head}{both}{body[: body.index('    table =')]}    bench.run({asked})\n"
    make.write("test_kernel.py", text)
    with make.arm(server) as arm:
        walked = walk(arm)
    assert walked.bad == []
    assert walked.configs == [
        ("dtype=torch.float32 n=64 provider=triton", THROUGH),
        ("dtype=torch.float16 n=64 provider=triton", THROUGH),
    ]


# --- who is served by the original ---------------------------------------------------------------

UNCLOCKED = (
    HEAD
    + """
@pytest.fixture(autouse=True)
def unclocked(monkeypatch):
    def refuse():
        raise RuntimeError("Triton's own")

    monkeypatch.setattr(triton.runtime.driver.active, "get_device_interface", refuse)
"""
)
"""Triton's own functions end where they ask for a clock."""
ORIGINAL = (
    UNCLOCKED
    + """
def test_speed():
    with pytest.raises(RuntimeError, match="Triton's own"):
        triton.testing.do_bench(lambda: double(torch.ones(64)))
"""
)


def test_outside_of_perf_passes_it_is_tritons(make: Project, server: ForkServer) -> None:
    make.write("test_kernel.py", ORIGINAL)
    done = make.run(server)
    assert [test.text for test in done.not_passed()] == []


BY_THE_KERNEL = """
def tuned(x):
    try:
        triton.testing.do_bench(lambda: double(x))
    except RuntimeError as problem:
        assert "Triton's own" in str(problem)
        return double(x)
    raise AssertionError("timed for tile-agent")
"""


def test_what_the_kernels_file_times_is_its_own(make: Project, server: ForkServer) -> None:
    make.write("kernel.py", KERNEL + BY_THE_KERNEL)
    body = UNCLOCKED + "import kernel\ndef test_tuned():\n    kernel.tuned(torch.ones(64))\n"
    make.write("test_kernel.py", body)
    with make.arm(server) as arm:
        walked = walk(arm)
    assert (walked.bad, walked.stops) == ([], [])


TUNED = (
    UNCLOCKED
    + """
TUNER = "def tune(fn):\\n    import triton\\n    return triton.testing.do_bench(fn)"

def test_tuner():
    module = {"__name__": "triton.runtime.autotuner"}
    exec(compile(TUNER, "autotuner.py", "exec"), module)
    with pytest.raises(RuntimeError, match="Triton's own"):
        module["tune"](lambda: double(torch.ones(64)))
"""
)


def test_what_a_tuner_times_is_its_own(make: Project, server: ForkServer) -> None:
    make.write("test_kernel.py", TUNED)
    with make.arm(server) as arm:
        walked = walk(arm)
    assert (walked.bad, walked.stops) == ([], [])


WRONGLY_ASKED = (
    HEAD
    + """
@pytest.mark.parametrize("asked", [{"nothing": 1}, {"return_mode": "mode"}, {"quantiles": [2]}])
def test_speed(asked):
    with pytest.raises((TypeError, AssertionError, ValueError)):
        triton.testing.do_bench(lambda: double(torch.ones(64)), **asked)
"""
)


def test_what_is_wrongly_asked_is_told_by_triton(make: Project, server: ForkServer) -> None:
    make.write("test_kernel.py", WRONGLY_ASKED)
    with make.arm(server) as arm:
        walked = walk(arm)
    assert (walked.bad, walked.stops) == ([], [])


SAME_FROM_OUTSIDE = (
    HEAD
    + """
import inspect

def test_signature():
    bench = triton.testing.do_bench
    assert bench.__name__ == "do_bench" and bench.__module__ == "triton.testing"
    assert "grad_to_none" in inspect.signature(bench).parameters
    assert "Benchmark" in bench.__doc__
"""
)


def test_it_looks_as_it_did(make: Project, server: ForkServer) -> None:
    make.write("test_kernel.py", SAME_FROM_OUTSIDE)
    assert make.run(server).not_passed() == ()


# --- what a test sees of its callable -------------------------------------------------------------

LOOKS_AT_ITS_OUTPUT = (
    HEAD
    + """
def test_output():
    x = torch.randn(1000, device=DEVICE)
    out = torch.zeros(1000, device=DEVICE)
    triton.testing.do_bench(lambda: double_into(x, out), rep=5)
    assert torch.equal(out, 2 * x)
"""
)


def test_a_test_may_look_at_what_was_timed(make: Project, server: ForkServer) -> None:
    make.write("test_kernel.py", LOOKS_AT_ITS_OUTPUT)
    with make.arm(server) as arm:
        assert walk(arm).bad == []
        arm.begin(nodeids(arm), deadline_in(60))
        arm.next_stop(deadline_in(60))
        seen = arm.examine(2, deadline_in(60))
        assert seen.written and seen.launches
        arm.go()
        done = arm.next_stop(deadline_in(60))
        assert done.not_passed() == ()  # type: ignore[union-attr]
