"""A candidate that computes its result elsewhere is found out: its tests launch no kernel."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from agent.frozen_tests import TestPlan
from agent.harness.measuring.block_timing import BlockTiming
from agent.harness.measuring.pairs import WorkerPairs
from agent.harness.measuring.pytest_judge import PytestJudge
from agent.harness.measuring.verifier import Verification
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import Checkout, deadline_in
from agent.measuring.decision import Rules, Status
from agent.measuring.looks import ComparisonPlan
from agent.measuring.measurement import Failure
from tests.support.project import KERNEL, PROJECT
from tests.support.repo import write
from tests.support.workers import start_server

LAUNCH = "    double_kernel[grid](x, y, x.numel(), BLOCK_SIZE=BLOCK_SIZE)\n"
SMALL_ONLY = f"    if x.numel() > 1000:\n        return 2 * x\n{LAUNCH}"
"""Right, and idle where it is timed."""
TESTS = TestPlan(
    files=("tests/test_double.py",),
    correctness=("tests/test_double.py::test_double_triton",),
    perf=("tests/test_double.py::test_perf_double_triton",),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """One of its own: other files kill theirs."""
    log = tmp_path_factory.mktemp("server") / "server.log"
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PYTEST_")]:
            patch.delenv(name)
        running = start_server(log, TRITON_INTERPRET="1")
    with running:
        yield running


@pytest.fixture
def judge(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PytestJudge]:
    pairs = partial(WorkerPairs, timing=BlockTiming(block_ms=5, settle_ms=1, least_samples=1))
    monkeypatch.setattr("agent.harness.measuring.pytest_judge.WorkerPairs", pairs)
    monkeypatch.setattr(
        "agent.harness.measuring.pytest_judge.ComparisonPlan", partial(ComparisonPlan, looks=(3,))
    )
    logs = tmp_path / "logs"
    logs.mkdir()
    with closing(PytestJudge(server, TESTS, framework="triton", rules=Rules(), logs=logs)) as judge:
        yield judge


def checkout(folder: Path, launch: str = LAUNCH) -> Checkout:
    write(folder, PROJECT | {"double.py": KERNEL.replace(LAUNCH, launch)})
    return Checkout(folder, (folder,), "double.py")


def test_results_of_another_origin_are_wrong(judge: PytestJudge, tmp_path: Path) -> None:
    honest = judge.verify(checkout(tmp_path / "origin"), deadline_in(60))
    assert isinstance(honest, Verification)
    assert honest.launching == TESTS.correctness
    idle = checkout(tmp_path / "idle", "    return 2 * x\n" + LAUNCH)
    assert isinstance(judge.verify(idle, deadline_in(60)), Verification)  # as a baseline it may
    judge.expect_launches(honest.launching)
    found = judge.verify(idle, deadline_in(60))
    assert isinstance(found, Failure)
    assert (found.status, found.correct) == (Status.REVERT, False)
    assert (
        found.reason == f"{TESTS.correctness[0]} passes without a launch of a kernel of double.py"
    )


def test_a_shortcut_for_what_is_timed_is_wrong(judge: PytestJudge, tmp_path: Path) -> None:
    origin = checkout(tmp_path / "origin")
    sly = checkout(tmp_path / "sly", SMALL_ONLY)
    judge.expect_launches(TESTS.correctness)
    assert isinstance(judge.verify(sly, deadline_in(60)), Verification)
    found = judge.compare(origin, sly, None, deadline_in(60))
    assert isinstance(found, Failure)
    assert (found.status, found.correct, found.incumbent) == (Status.REVERT, False, False)
    assert "launches no kernel of double.py" in found.reason
