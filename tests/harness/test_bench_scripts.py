"""Benchmark scripts as perf tests: run as `python` would, timed and compared as tests are."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from agent.frozen_tests import TestPlan
from agent.harness.discovery import Selection, discover
from agent.harness.measuring.block_timing import BlockTiming
from agent.harness.measuring.pairs import WorkerPairs
from agent.harness.measuring.pytest_judge import PytestJudge, Verification
from agent.harness.measuring.timed_pass import TimedPass
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.results import Pass
from agent.harness.processes.worker_session import Checkout, deadline_in
from agent.measuring.decision import Rules, Status
from agent.measuring.looks import ComparisonPlan
from agent.measuring.measurement import Failure
from agent.measuring.statistics import Comparison
from tests.harness.timing_adapters.projects import HEAD, KERNEL, WRONG_BEYOND, walk
from tests.support.workers import Project
from tile_agent_pytest.bench_command import BenchCommand

THROUGH = "triton.testing.do_bench"
SCRIPT = """
import sys
import torch
import triton
from kernel import double
from sizes import SIZES


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["n"], x_vals=SIZES, line_arg="provider", line_vals=["torch", "triton"],
        line_names=["Torch", "Triton"], plot_name="double", args={},
    )
)
def report(n, provider):
    x = torch.randn(n, device="cuda" if torch.cuda.is_available() else "cpu")
    run = (lambda: double(x)) if provider == "triton" else (lambda: 2 * x)
    return triton.testing.do_bench(run, warmup=1, rep=2)


if __name__ == "__main__":
    for n in map(int, sys.argv[1:]):
        report.fn(n, "triton")
    report.run(print_data=True, show_plots=True, save_path="figures")
    sys.exit(0)
"""
RUN = "benchmarks/speed.py 512"
REPORT = "benchmarks/speed.py::report"
NODEID = "benchmarks/speed.py::speed.py 512"
CONFIGS = ["forward", "n=64 provider=triton", "n=128 provider=triton"]
PERF = "\n\ndef test_perf(tile_bench):\n    tile_bench(lambda: double(torch.ones(64)))\n"


def write_to(project: Project, kernel: str = KERNEL) -> Checkout:
    project.write("kernel.py", kernel)
    project.write("test_kernel.py", HEAD + PERF)
    project.write("benchmarks/speed.py", SCRIPT)
    project.write("benchmarks/sizes.py", "SIZES = [64, 128]\n")
    return project.checkout()


def planned(
    project: Project, server: ForkServer, *benches: str, perf_k: str | None = None
) -> TestPlan:
    return discover(
        server,
        project.checkout(),
        Selection(("test_kernel.py",), perf_k=perf_k, benches=benches),
        framework="triton",
        log=project.log(),
        deadline=deadline_in(60),
    )


def test_a_script_is_the_perf_test_in_place_of_others(project: Project, server: ForkServer) -> None:
    write_to(project)
    plan = planned(project, server, RUN)
    assert plan.perf == (NODEID,)
    assert plan.correctness == ("test_kernel.py::test_double",)
    assert plan.arguments == ("test_kernel.py", f"--tile-bench-script={RUN}")
    assert plan.arguments_for([NODEID, "test_kernel.py"]) == plan.arguments[::-1]


def test_with_perf_k_it_is_one_of_them(project: Project, server: ForkServer) -> None:
    write_to(project)
    plan = planned(project, server, REPORT, perf_k="test_perf")
    assert plan.perf == ("test_kernel.py::test_perf", REPORT)


def test_its_timings_are_configs_by_name(project: Project, server: ForkServer) -> None:
    """With its arguments, and what lies beside it; no plot is drawn, and no file is written."""
    write_to(project)
    argument = f"--tile-bench-script={RUN}"
    with project.arm(server, "test_kernel.py", argument, tests=[NODEID]) as arm:
        walked = walk(arm)
    assert walked.bad == []
    assert walked.configs == [(config, THROUGH) for config in CONFIGS]
    assert len(walked.stops) == len(CONFIGS) + 2  # with those of the reference
    assert not (project.root / "figures").exists()


def test_nothing_is_collected_beside_scripts_alone(project: Project, server: ForkServer) -> None:
    """As where a worker only times one: another test file may lack what it imports."""
    write_to(project)
    project.write("test_other.py", "import no_such_library\n")
    arguments = planned(project, server, REPORT).arguments_with([REPORT])
    with project.arm(server, *arguments, tests=[REPORT]) as arm:
        assert arm.collection(deadline_in(60)).errors == ()
        walked = walk(arm)
    assert walked.bad == []
    assert walked.configs == [(config, THROUGH) for config in CONFIGS[1:]]


def test_a_report_is_run_without_the_script_around_it(project: Project, server: ForkServer) -> None:
    write_to(project)
    argument = f"--tile-bench-script={REPORT}"
    with project.arm(server, "test_kernel.py", argument, tests=[REPORT]) as arm:
        walked = walk(arm)
    assert walked.bad == []
    assert walked.configs == [(config, THROUGH) for config in CONFIGS[1:]]


WRITES = """
import os
from pathlib import Path
import torch
import triton
from kernel import double

os.makedirs("stat/tables", exist_ok=True)
os.makedirs("stat/tables", exist_ok=True)
Path("plots").mkdir(exist_ok=True)
triton.testing.do_bench(lambda: double(torch.ones(64)), warmup=1, rep=2)
with open(os.path.join("stat", "tables", "double.csv"), "w") as table:
    table.write("64,0.1")
Path("plots/double.txt").write_text("*")
assert open("stat/tables/double.csv").read() == "64,0.1"
open("stat/tables/double.csv", "a").write("")
for refused in ("no/such/double.csv", "../double.csv"):
    try:
        open(refused, "w").close()
    except OSError:
        continue
    raise AssertionError(refused)
"""


def test_what_a_script_writes_beside_itself_is_in_nobodys_way(
    project: Project, server: ForkServer
) -> None:
    """As lightning-attention's, which makes a folder for its plots before it times anything."""
    write_to(project)
    project.write("writes.py", WRITES)
    before = sorted(project.root.rglob("*"))
    nodeid = BenchCommand.parse("writes.py").nodeid
    with project.arm(server, "--tile-bench-script=writes.py", tests=[nodeid]) as arm:
        walked = walk(arm)
    assert walked.bad == []
    assert [through for _, through in walked.configs] == [THROUGH]
    new = set(project.root.rglob("*")) - {*before}
    assert {path for path in new if "__pycache__" not in path.parts} == set()


@pytest.mark.parametrize(
    ("text", "bench", "said"),
    [
        ("import sys\nsys.exit(3)", "speed.py", "RuntimeError: speed.py ended with exit code 3"),
        ("raise OSError('no such size')", "speed.py", "OSError: no such size"),
        ("report = 1", "speed.py::report", "LookupError: speed.py has no report under perf_report"),
    ],
)
def test_a_script_that_fails_says_so_in_a_line(
    project: Project, server: ForkServer, text: str, bench: str, said: str
) -> None:
    project.write("kernel.py", KERNEL)
    project.write("test_kernel.py", HEAD)
    project.write("speed.py", f"from kernel import double\n{text}\n")
    arguments = ("test_kernel.py", f"--tile-bench-script={bench}")
    nodeid = BenchCommand.parse(bench).nodeid
    with project.arm(server, *arguments, tests=[nodeid]) as arm:
        done = arm.run([nodeid], deadline_in(60), timed=True)
    assert isinstance(done, Pass)
    (failed,) = done.not_passed()
    assert failed.headline == said


@pytest.fixture
def judge(
    project: Project, server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> PytestJudge:
    short = BlockTiming(block_ms=1, settle_ms=1, least_samples=1)
    judging = "agent.harness.measuring.pytest_judge"
    monkeypatch.setattr(f"{judging}.WorkerPairs", partial(WorkerPairs, timing=short))
    monkeypatch.setattr(f"{judging}.ComparisonPlan", partial(ComparisonPlan, looks=(2,)))
    write_to(project)
    logs = tmp_path / "logs"
    logs.mkdir()
    plan = replace(planned(project, server, RUN), correctness=("test_kernel.py::test_double",))
    return PytestJudge(server, plan, framework="triton", rules=Rules(), logs=logs)


@pytest.mark.full
def test_both_versions_are_timed_in_turn(judge: PytestJudge, project: Project) -> None:
    names = [f"speed.py 512{'' if c == 'forward' else f' {c}'}" for c in CONFIGS]
    with closing(judge):
        timed = judge.time(project.checkout(), deadline_in(60))
        assert isinstance(timed, TimedPass)
        assert [record.config for record in timed.records] == names
        found = judge.compare(project.checkout(), project.checkout(), None, deadline_in(60))
    assert isinstance(found, Comparison)
    assert [config.config for config in found.configs] == names


def test_what_is_wrong_at_a_scripts_shape_alone_is_refused(
    judge: PytestJudge, project: Project, tmp_path: Path
) -> None:
    """The correctness test knows 70 elements; the script times 64, 128 and 512."""
    wrong = write_to(Project(tmp_path / "wrong"), WRONG_BEYOND.format(limit=500))
    with closing(judge):
        origin = project.checkout()
        refused = judge.verify(wrong, deadline_in(60), origin=origin)
        assert isinstance(refused, Failure)
        assert refused.status is Status.REVERT
        assert "speed.py 512" in refused.reason
        right = write_to(Project(tmp_path / "right"), KERNEL.replace("64", "128"))
        assert isinstance(judge.verify(right, deadline_in(60), origin=origin), Verification)


@pytest.mark.full
def test_a_script_that_times_nothing_is_told_how(judge: PytestJudge, project: Project) -> None:
    project.write("benchmarks/speed.py", "from kernel import double\nprint(double)\n")
    with closing(judge):
        failure = judge.time(project.checkout(), deadline_in(60))
    assert isinstance(failure, Failure)
    assert failure.reason.startswith(f"{NODEID} recorded no timing; time the launch with")
