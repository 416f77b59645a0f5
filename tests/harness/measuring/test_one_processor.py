"""Without a GPU, whatever is compared is timed on the same processor."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from agent.frozen_tests import TestPlan
from agent.harness.measuring.block_timing import BlockTiming
from agent.harness.measuring.interleaved_screen import INCUMBENT, InterleavedScreen
from agent.harness.measuring.pairs import WorkerPairs
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.results import PreparedTiming
from agent.harness.processes.worker_session import WorkerSession, deadline_in
from agent.measuring.blocks import RawPair
from tests.support.workers import Project
from tile_agent_pytest.one_processor import OneProcessor

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity"), reason="the system has no affinities"
)

PLAN = TestPlan(("test_kernel.py",), (), ("test_kernel.py::test_perf",))
SHORT = BlockTiming(block_ms=1, settle_ms=1, least_samples=2)
TEST = """\
import os
from kernel import before, launch

def test_perf(tile_bench):
    tile_bench(launch)
    assert os.sched_getaffinity(0) == before
"""
KERNEL = """\
import os, time

before = os.sched_getaffinity(0)
calls = 0

def launch():
    global calls
    calls += 1
    time.sleep(0.002)
    assert calls < 3 or len(os.sched_getaffinity(0)) == 1
"""


@pytest.fixture
def processors(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """Where whatever was prepared stays."""
    seen = []
    prepare = WorkerSession.prepare

    def noted(self: WorkerSession, *arguments: Any) -> PreparedTiming | str:
        answer = prepare(self, *arguments)
        assert isinstance(answer, PreparedTiming), answer
        seen.append(answer.processor)
        return answer

    monkeypatch.setattr(WorkerSession, "prepare", noted)
    return seen


def test_the_arms_of_a_pair(
    server: ForkServer, tmp_path: Path, processors: list[int | None]
) -> None:
    ours, theirs = (Project(tmp_path / name, TEST, KERNEL) for name in ("ours", "theirs"))
    source = WorkerPairs(
        server=server,
        incumbent=ours.checkout(),
        candidate=theirs.checkout(),
        plan=PLAN,
        framework="triton",
        logs=tmp_path,
        deadline=deadline_in(60),
        timing=SHORT,
    )
    raw = source.pair(0)
    assert isinstance(raw, RawPair), raw
    assert len(raw.configs[0].blocks) == 4
    assert processors[0] in os.sched_getaffinity(0)
    assert processors == [processors[0]] * 2


def test_all_of_a_screen(server: ForkServer, tmp_path: Path, processors: list[int | None]) -> None:
    names = (INCUMBENT, "a", "b")
    made = {n: Project(tmp_path / f"of-{n}", TEST, KERNEL).checkout() for n in names}
    logs = {name: tmp_path / f"{name}.log" for name in names}
    with InterleavedScreen(server, PLAN, made, logs) as screen:
        seen = screen.look(names[1:], SHORT, deadline_in(60))
    assert set(seen) == {"a", "b"}
    assert processors[0] in os.sched_getaffinity(0)
    assert processors == [processors[0]] * 3


def test_a_processor_that_is_not_there_leaves_the_thread_free() -> None:
    before = os.sched_getaffinity(0)
    one = OneProcessor()
    assert one.stay(100_000) is None
    assert os.sched_getaffinity(0) == before
    number = one.stay()
    assert number in before
    assert os.sched_getaffinity(0) == {number} == {one.stay(number)}
    one.leave()
    one.leave()
    assert os.sched_getaffinity(0) == before
