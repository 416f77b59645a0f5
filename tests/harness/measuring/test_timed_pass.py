"""One pass of more perf tests than there is time for, in real workers."""

from __future__ import annotations

import itertools
from contextlib import closing
from pathlib import Path

import pytest

from agent.frozen_tests import TestPlan
from agent.harness.measuring.pytest_judge import PytestJudge
from agent.harness.measuring.timed_pass import PassLimit, TimedPass, costs_of
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.results import TestResult
from agent.harness.processes.worker_session import deadline_in
from agent.measuring.decision import Rules
from agent.measuring.measurement import Failure
from tests.support.workers import Project

COUNT = 20
TEST = """
    import time
    import pytest
    from kernel import launch

    OPENED = []

    @pytest.fixture(scope="module")
    def opened():
        OPENED.append(1)
        return 1000.0 * len(OPENED)

    @pytest.mark.parametrize("who", ["kernel", "library"])
    @pytest.mark.parametrize("n", range(10))
    def test_perf(n, who, opened, record_property):
        time.sleep(SLEEP_S)
        launch(n)
        if who == FIRST_OF_USE or n > 4:
            name = "triton" if who == "kernel" else "pytorch"
            record_property("benchmark", {name: {"forward": {"median": opened + n}}})
"""
NODEIDS = tuple(
    f"test_kernel.py::test_perf[{n}-{who}]" for n in range(10) for who in ("kernel", "library")
)
PLAN = TestPlan(("test_kernel.py",), (), NODEIDS)


class Timed:
    """Projects whose perf tests take a while, and what a judge says of one."""

    def __init__(self, server: ForkServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.numbers = itertools.count(1)

    def __call__(
        self, limit: PassLimit | None, *, sleep_s: float = 0.1, launch: str = "pass"
    ) -> TimedPass | Failure:
        root = self.folder / f"project-{next(self.numbers)}"
        test = TEST.replace("SLEEP_S", str(sleep_s)).replace("FIRST_OF_USE", "'kernel'")
        project = Project(root, test, f"def launch(n):\n    {launch}\n")
        rules, logs = Rules(), self.folder
        made = PytestJudge(self.server, PLAN, framework="triton", rules=rules, logs=logs)
        with closing(made) as judge:
            return judge.time(project.checkout(), deadline_in(60), limit=limit)


@pytest.fixture
def timed(server: ForkServer, tmp_path: Path) -> Timed:
    return Timed(server, tmp_path)


def test_without_a_limit_all_of_them_run(timed: Timed) -> None:
    found = timed(None, sleep_s=0.0)
    assert isinstance(found, TimedPass)
    assert not found.left_out
    assert [cost.nodeid for cost in found.costs] == list(NODEIDS[::2])


def test_what_fits_into_the_limit_is_spread_over_all(timed: Timed) -> None:
    """In two passes, of which each closes what it opened: these tests time themselves."""
    found = timed(PassLimit(0.75))
    assert isinstance(found, TimedPass)
    ran = [nodeid for nodeid in NODEIDS if nodeid not in found.left_out]
    assert 3 <= len(ran) < COUNT
    assert (ran[0], ran[-1]) == (NODEIDS[0], NODEIDS[-1])
    assert [record.config for record in found.records] == [
        nodeid.partition("::")[2] for nodeid in ran if "kernel" in nodeid.partition("::")[2]
    ]
    assert all(record.latency_ms >= 2000.0 for record in found.records)


def test_tests_that_are_named_run_whatever_they_take(timed: Timed) -> None:
    found = timed(PassLimit(0.0, ("[7-", "[8-kernel]")), sleep_s=0.01)
    assert isinstance(found, TimedPass)
    ran = [nodeid for nodeid in NODEIDS if nodeid not in found.left_out]
    assert ran == [nodeid for nodeid in NODEIDS if "[7-" in nodeid or "[8-kernel]" in nodeid]


def test_it_goes_on_until_something_is_of_use(timed: Timed) -> None:
    found = timed(PassLimit(0.0), sleep_s=0.0)
    assert isinstance(found, TimedPass)
    assert len(found.records) == 1


def test_a_failure_ends_it(timed: Timed) -> None:
    found = timed(PassLimit(0.0), sleep_s=0.0, launch="assert n, 'nothing to do'")
    assert isinstance(found, Failure)
    assert "nothing to do" in found.reason


def test_what_a_tuner_took_is_no_cost_of_a_later_pass() -> None:
    record = ("benchmark", {"triton": {"forward": {"median": 1.0}}})
    test = TestResult("t.py::test_perf", "passed", "", "", (record,), "", (), 9.0, tuned_s=7.5)
    (cost,) = costs_of([test], "triton", {"t.py::test_perf": "test_perf"})
    assert cost.seconds == 1.5
