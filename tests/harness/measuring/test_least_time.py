"""What the device takes to write results: of which timings it is known."""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from agent.frozen_tests import TestPlan
from agent.harness.measuring.block_timing import BlockTiming
from agent.harness.measuring.comparer import Comparer
from agent.harness.measuring.pairs import WorkerPairs
from agent.harness.measuring.pytest_judge import PytestJudge
from agent.harness.measuring.verifier import Verification
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import Checkout, deadline_in
from agent.measuring.decision import Rules
from agent.measuring.looks import ComparisonPlan
from agent.measuring.statistics import Comparison
from tests.support.repo import write

KERNEL = """
import torch

TABLE = torch.arange(4096.0)


def doubled(x):
    return x * 2


def doubled_into(x, out):
    return torch.mul(x, 2, out=out)


def doubled_in_place(x):
    x.mul_(2)


def one_row(cache, x):
    cache[0] = x


def table(x):
    return TABLE
"""
CALLS = {
    "doubled": ("doubled(x)", True),
    "doubled_into": ("doubled_into(x, out)", True),
    "doubled_in_place": ("doubled_in_place(x)", False),
    "one_row": ("one_row(cache, x)", False),
    "table": ("table(x)", False),
}
"""Perf test -> what it times, whether all of it is sure to be written."""
TESTS = """
import torch
from kernel import *


def test_right():
    assert torch.equal(doubled(torch.ones(4)), torch.full((4,), 2.0))
""" + "".join(
    f"""

def test_perf_{name}(tile_bench):
    x, out, cache = torch.randn(4096), torch.zeros(4096), torch.zeros(8, 4096)
    tile_bench(lambda: {call})
"""
    for name, (call, _) in CALLS.items()
)


def test_it_is_known_where_a_call_is_sure_to_write_bytes(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = partial(WorkerPairs, timing=BlockTiming(block_ms=1, settle_ms=1, least_samples=1))
    monkeypatch.setattr("agent.harness.measuring.pytest_judge.WorkerPairs", pairs)
    monkeypatch.setattr(
        "agent.harness.measuring.pytest_judge.ComparisonPlan", partial(ComparisonPlan, looks=(2,))
    )
    arms = []
    for name in ("origin", "candidate"):
        write(tmp_path / name, {"kernel.py": KERNEL, "test_kernel.py": TESTS})
        arms.append(Checkout(tmp_path / name, (tmp_path / name,), "kernel.py"))
    origin, candidate = arms
    (tmp_path / "logs").mkdir()
    tests = [f"test_kernel.py::test_{name}" for name in ("right", *(f"perf_{n}" for n in CALLS))]
    plan = TestPlan(("test_kernel.py",), tuple(tests[:1]), tuple(tests[1:]))
    with closing(
        PytestJudge(server, plan, framework="triton", rules=Rules(), logs=tmp_path / "logs")
    ) as judge:
        verified = judge.verify(candidate, deadline_in(60), origin=origin)
        assert isinstance(verified, Verification), verified
        compared = judge.compare(origin, candidate, None, deadline_in(60))
    assert isinstance(compared, Comparison), compared
    found = {c.config.removeprefix("test_perf_"): c.least_ms > 0 for c in compared.configs}
    assert found == {name: sure for name, (_, sure) in CALLS.items()}


def test_more_bytes_take_longer(server: ForkServer, tmp_path: Path) -> None:
    deadline = time.monotonic() + 60
    with closing(Comparer(server, tmp_path / "log")) as comparer:
        few, many = (comparer.filling_ms(n, "OnCpu", deadline) for n in (2**16, 2**28))
    assert 0 < few < many
