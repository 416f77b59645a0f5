"""A project without `tile_bench`, from its discovery to a verdict; what a candidate may not do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from agent.frozen_tests import TestPlan
from agent.harness.discovery import Selection, discover
from agent.harness.measuring.block_timing import BlockTiming
from agent.harness.measuring.interleaved_screen import InterleavedScreen
from agent.harness.measuring.pairs import WorkerPairs
from agent.harness.measuring.pytest_judge import PytestJudge, Verification
from agent.harness.measuring.timed_pass import TimedPass
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import Checkout, deadline_in
from agent.measuring.blocks import RawPair
from agent.measuring.decision import Rules, Status
from agent.measuring.looks import ComparisonPlan
from agent.measuring.measurement import Calibration, Failure
from agent.measuring.statistics import Comparison
from tests.harness.timing_adapters.projects import HEAD, KERNEL, WRONG_BEYOND
from tests.support.workers import Project

SHORT = BlockTiming(block_ms=1, settle_ms=1, least_samples=1)
TESTS = (
    HEAD
    + """
from helpers import fast

def test_speed():
    x = torch.randn(1000, device=DEVICE)
    theirs = triton.testing.do_bench(lambda: x + x)
    assert fast(lambda: double(x)) > 0 and theirs > 0
"""
)
HELPERS = """
import triton.testing

def fast(run):
    return triton.testing.do_bench(run, return_mode="median")
"""
NOTE = "timed through triton.testing.do_bench (1 test): block by block, as with tile_bench"


def made(folder: Path, kernel: str = KERNEL) -> Checkout:
    project = Project(folder, TESTS, kernel)
    project.write("helpers.py", HELPERS)
    return project.checkout()


@pytest.fixture
def origin(tmp_path: Path) -> Checkout:
    return made(tmp_path / "origin")


@pytest.fixture
def plan(origin: Checkout, server: ForkServer, tmp_path: Path) -> TestPlan:
    return discovered(origin, server, tmp_path)


def discovered(checkout: Checkout, server: ForkServer, folder: Path) -> TestPlan:
    return discover(
        server,
        checkout,
        Selection(("test_kernel.py",)),
        framework="triton",
        log=folder / "collect.log",
        deadline=deadline_in(60),
    )


@pytest.fixture
def judge(
    server: ForkServer, plan: TestPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PytestJudge]:
    judging = "agent.harness.measuring.pytest_judge"
    monkeypatch.setattr(f"{judging}.WorkerPairs", partial(WorkerPairs, timing=SHORT))
    monkeypatch.setattr(f"{judging}.ComparisonPlan", partial(ComparisonPlan, looks=(2,)))
    logs = tmp_path / "logs"
    logs.mkdir()
    judge = PytestJudge(server, plan, framework="triton", rules=Rules(), logs=logs)
    with closing(judge):
        yield judge


def test_a_test_that_records_nothing_is_a_perf_test(plan: TestPlan) -> None:
    assert plan.perf == ("test_kernel.py::test_speed",)
    assert plan.correctness == ("test_kernel.py::test_double",)
    assert plan.notes == (NOTE,)


def test_where_a_name_says_which_tests_are_perf_tests_it_stays_at_those(
    project: Project, server: ForkServer, tmp_path: Path
) -> None:
    project.write("kernel.py", KERNEL)
    project.write("helpers.py", HELPERS)
    project.write("test_kernel.py", TESTS + "\ndef test_perf(tile_bench):\n    pass\n")
    plan = discovered(project.checkout(), server, tmp_path)
    assert plan.perf == ("test_kernel.py::test_perf",)
    assert plan.correctness == ("test_kernel.py::test_double", "test_kernel.py::test_speed")
    assert plan.notes == ()


@pytest.mark.full
def test_its_timings_are_recorded_and_compared(judge: PytestJudge, origin: Checkout) -> None:
    timed = judge.time(origin, deadline_in(60))
    assert isinstance(timed, TimedPass)
    assert [record.config for record in timed.records] == ["test_speed #2"]
    assert [cost.stepped for cost in timed.costs] == [1]
    calibration = judge.calibrate(origin, deadline_in(60))
    assert isinstance(calibration, Calibration)
    assert calibration.launched
    assert list(calibration.levels_ms) == ["test_speed #2"]
    outcome = judge.compare(origin, origin, calibration, deadline_in(60))
    assert isinstance(outcome, Comparison)
    assert [config.config for config in outcome.configs] == ["test_speed #2"]


def test_an_honest_candidate_is_verified(
    judge: PytestJudge, origin: Checkout, tmp_path: Path
) -> None:
    honest = made(tmp_path / "honest", KERNEL.replace("64)", "128)"))
    verified = judge.verify(honest, deadline_in(60), origin=origin)
    assert isinstance(verified, Verification)


def test_what_is_wrong_at_the_timed_shape_alone_is_refused(
    judge: PytestJudge, origin: Checkout, tmp_path: Path
) -> None:
    wrong = made(tmp_path / "wrong", WRONG_BEYOND.format(limit=500))
    refused = judge.verify(wrong, deadline_in(60), origin=origin)
    assert isinstance(refused, Failure)
    assert refused.status is Status.REVERT
    assert refused.reason.startswith("test_kernel.py::test_speed #2: ")


def test_variants_are_screened(
    judge: PytestJudge, origin: Checkout, plan: TestPlan, server: ForkServer, tmp_path: Path
) -> None:
    logs = {name: tmp_path / f"{name or 'incumbent'}.log" for name in ("", "same")}
    with InterleavedScreen(server, plan, dict.fromkeys(logs, origin), logs) as screen:
        looked = screen.look(["same"], SHORT.on_cpu(), deadline_in(60))
    assert list(looked) == ["same"]


REFERENCE = """
def test_torch(benchmark):
    benchmark(lambda: torch.ones(1000) * 2)
"""


def test_a_test_that_times_a_reference_alone_is_no_config(
    server: ForkServer, tmp_path: Path
) -> None:
    pytest.importorskip("pytest_benchmark")
    project = Project(tmp_path / "reference", TESTS + REFERENCE, KERNEL)
    project.write("helpers.py", HELPERS)
    tests = tuple(f"test_kernel.py::test_{name}" for name in ("speed", "torch"))
    plan = TestPlan(("test_kernel.py",), (), tests)
    with closing(
        PytestJudge(server, plan, framework="triton", rules=Rules(), logs=tmp_path)
    ) as judge:
        timed = judge.time(project.checkout(), deadline_in(60))
    assert isinstance(timed, TimedPass)
    assert [record.config for record in timed.records] == ["test_speed #2"]
    assert [cost.nodeid for cost in timed.costs] == ["test_kernel.py::test_speed"]


FRAGILE = """
def test_fragile():
    calm = torch.arange(100.0)

    def reference():
        assert torch.equal(calm, torch.arange(100.0))
        return calm + 1

    triton.testing.do_bench(reference)
    triton.testing.do_bench(lambda: double(calm))
"""


def test_a_reference_is_not_called_on_other_bytes(server: ForkServer, tmp_path: Path) -> None:
    checkout = Project(tmp_path / "fragile", HEAD + FRAGILE, KERNEL).checkout()
    plan = TestPlan(
        ("test_kernel.py",), ("test_kernel.py::test_double",), ("test_kernel.py::test_fragile",)
    )
    with closing(
        PytestJudge(server, plan, framework="triton", rules=Rules(), logs=tmp_path)
    ) as judge:
        verified = judge.verify(checkout, deadline_in(60), origin=checkout)
    assert isinstance(verified, Verification), verified


BESIDE = """
def test_by_itself(record_property):
    import time

    x = torch.randn(1000, device=DEVICE)
    begin = time.perf_counter()
    double(x)
    taken_ms = (time.perf_counter() - begin) * 1e3
    record_property("benchmark", {"triton": {"forward": {"median": taken_ms}}})
"""


def test_tests_that_time_in_ways_of_their_own_are_compared_beside_those_that_wait(
    server: ForkServer, tmp_path: Path
) -> None:
    project = Project(tmp_path / "mixed", TESTS + BESIDE, KERNEL)
    project.write("helpers.py", HELPERS)
    checkout = project.checkout()
    tests = tuple(f"test_kernel.py::test_{name}" for name in ("speed", "by_itself"))
    plan = TestPlan(("test_kernel.py",), (), tests)
    pairs = WorkerPairs(
        server, checkout, checkout, plan, "triton", tmp_path, deadline_in(60), timing=SHORT
    )
    pair = pairs.pair(0)
    assert isinstance(pair, RawPair)
    assert [config.config for config in pair.configs] == ["test_speed #2", "test_by_itself"]
    assert len(pair.configs[1].blocks) == 4


# --- what a candidate may not do ------------------------------------------------------------------

NO_LAUNCH = KERNEL.replace("return double_into(x, torch.empty_like(x))", "return x * 2")
REPLACED = {
    "function": ("triton.testing.do_bench = lambda *_, **__: 1e-9", "triton.testing.do_bench"),
    "cell": (
        "cells = triton.testing.do_bench.__closure__\n"
        "cells[0].cell_contents = lambda *_, **__: 1e-9",
        "triton.testing.do_bench",
    ),
    "method": (
        "import tile_agent_pytest.timing_takeover as taken\n"
        "real = taken.TimingTakeover.time\n"
        "taken.TimingTakeover.time = lambda *given, **asked: real(*given, **asked)",
        "tile_agent_pytest.timing_takeover.TimingTakeover.time",
    ),
}


@pytest.mark.parametrize("what", REPLACED)
def test_a_candidate_that_replaces_what_times_is_tampered(
    judge: PytestJudge, origin: Checkout, tmp_path: Path, what: str
) -> None:
    text, name = REPLACED[what]
    candidate = made(tmp_path / "candidate", f"{KERNEL}\n\n{text}\n")
    verified = judge.verify(candidate, deadline_in(60), origin=origin)
    compared = judge.compare(origin, candidate, None, deadline_in(60))
    for outcome in (verified, compared):
        assert isinstance(outcome, Failure)
        assert outcome.status is Status.TAMPERED
        assert outcome.reason == f"puts something of its own in place of {name}"


def test_a_candidate_without_a_launch_is_refused(
    judge: PytestJudge, origin: Checkout, tmp_path: Path
) -> None:
    candidate = made(tmp_path / "candidate", NO_LAUNCH)
    judge.expect_launches(())
    outcome = judge.verify(candidate, deadline_in(60), origin=origin)
    assert isinstance(outcome, Failure)
    compared = judge.compare(origin, candidate, None, deadline_in(60))
    assert isinstance(compared, Failure)
    assert compared.reason == "test_speed #2 launches no kernel of kernel.py"
