"""The same on a GPU, where calls are timed one by one or as a graph, and what only it can do."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from agent.environment import probe
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
from agent.measuring.statistics import Comparison
from tests.harness.measuring.test_examiner import CALL, DISHONEST, HONEST, KERNEL, TESTS
from tests.support.gpu import watched
from tests.support.repo import write
from tests.support.workers import start_server

GPU = probe().gpu

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(GPU is None, reason="needs an NVIDIA GPU, and NVML sees none"),
]

ATOMIC = """

@triton.jit
def sum_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y_ptr, tl.sum(tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)))


def total(x):
    y = torch.zeros(1, device=x.device)
    sum_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y
"""
PERF = """

@pytest.mark.parametrize("rows", [64, 8192])
def test_perf_softmax(tile_bench, rows):
    x = torch.randn(rows, 1024)
    before = x.clone()
    tile_bench(lambda: softmax(x))
    assert torch.equal(x, before)


@pytest.mark.parametrize("n", [1000, 10**7])
def test_perf_in_place(tile_bench, n):
    x = torch.randn(n)
    tile_bench(lambda: double_(x))


@pytest.mark.parametrize("n", [1000, 10**7])
def test_perf_out(tile_bench, n):
    x, out = torch.randn(n), torch.zeros(n)
    tile_bench(lambda: double_into(x, out))


def test_perf_atomic(tile_bench):
    x = torch.randn(10**6)
    tile_bench(lambda: total(x))
"""
TEXT = (
    "import pytest\n"
    + TESTS.partition("def test_perf_softmax")[0].replace("import double_", "import total, double_")
    + "torch.set_default_device('cuda')\n"
    + PERF
)
NAMES = (
    *(f"softmax[{n}]" for n in (64, 8192)),
    *(f"{name}[{n}]" for name in ("in_place", "out") for n in (1000, 10**7)),
    "atomic",
)
PLAN = TestPlan(
    files=("test_kernel.py",),
    correctness=("test_kernel.py::test_right",),
    perf=tuple(f"test_kernel.py::test_perf_{name}" for name in NAMES),
)
AT_TIMED = (("< 32", "< 1024"), ("rows == 16", "rows >= 64"))
"""What the cheats of the CPU look for, at these sizes."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("PYTEST_", "TRITON_"))]:
            patch.delenv(name)
        running = start_server(tmp_path_factory.mktemp("server") / "server.log")
    with running:
        yield running


@contextmanager
def judging(server: ForkServer, plan: TestPlan, folder: Path) -> Iterator[PytestJudge]:
    assert GPU is not None
    logs = folder / "logs"
    logs.mkdir()
    watch = watched(GPU)
    pairs = partial(WorkerPairs, timing=BlockTiming(block_ms=5, settle_ms=5, quads=2))
    comparisons = partial(ComparisonPlan, looks=(2,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agent.harness.measuring.pytest_judge.WorkerPairs", pairs)
        patch.setattr("agent.harness.measuring.pytest_judge.ComparisonPlan", comparisons)
        judge = PytestJudge(server, plan, framework="triton", rules=Rules(), logs=logs, watch=watch)
        with closing(watch), closing(judge):
            yield judge


@pytest.fixture
def judge(server: ForkServer, tmp_path: Path) -> Iterator[PytestJudge]:
    with judging(server, PLAN, tmp_path) as judge:
        yield judge


def edited(folder: Path, *edits: tuple[str, str]) -> Checkout:
    text = KERNEL + ATOMIC
    for old, new in edits:
        assert old in text
        for cpu, gpu in AT_TIMED:
            new = new.replace(cpu, gpu)
        text = text.replace(old, new)
    write(folder, {"kernel.py": text, "test_kernel.py": TEXT})
    return Checkout(folder, (folder,), "kernel.py")


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_edit_passes(judge: PytestJudge, tmp_path: Path, name: str) -> None:
    origin = edited(tmp_path / "origin")
    candidate = edited(tmp_path / "candidate", *HONEST[name])
    outcome = judge.verify(candidate, deadline_in(100), origin=origin)
    assert isinstance(outcome, Verification), outcome
    compared = judge.compare(origin, candidate, None, deadline_in(100))
    assert isinstance(compared, Comparison), compared


ON_GPU = {
    "a side stream": (
        (
            CALL,
            """with torch.cuda.stream(SIDE):
        softmax_kernel[(rows,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
    return y


SIDE = torch.cuda.Stream()""",
        ),
        "",
    ),
    "a graph of the first call": (
        (
            CALL,
            """key = (x.shape, x.data_ptr())
    if rows >= 64 and key not in GRAPHS:
        softmax_kernel[(rows,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
        GRAPHS[key] = y
    if key in GRAPHS:
        softmax_kernel[(1,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
        return GRAPHS[key]
    softmax_kernel[(rows,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
    return y


GRAPHS = {}""",
        ),
        "not the origin's result|earlier result",
    ),
}


@pytest.mark.parametrize("name", [*DISHONEST, *ON_GPU])
def test_a_dishonest_edit_is_refused(judge: PytestJudge, tmp_path: Path, name: str) -> None:
    *edits, reason = {**DISHONEST, **ON_GPU}[name]
    origin = edited(tmp_path / "origin")
    candidate = edited(tmp_path / "candidate", *edits)
    outcome = judge.verify(candidate, deadline_in(100), origin=origin)
    if not isinstance(outcome, Failure):
        compared = judge.compare(origin, candidate, None, deadline_in(100))
        assert isinstance(compared, Failure), compared
        outcome = compared
    assert outcome.status in (Status.REVERT, Status.TAMPERED, Status.CRASH)
    assert re.search(reason, outcome.reason), outcome.reason


BIG = """
import pytest
import torch
from kernel import softmax


def test_right():
    x = torch.randn(16, 100, device="cuda")
    torch.testing.assert_close(softmax(x), torch.softmax(x, 1))


def test_perf(tile_bench):
    _, total = torch.cuda.mem_get_info()
    x = torch.empty(int(0.2 * total / 4) // 4096, 4096, device="cuda").fill_(1)
    tile_bench(lambda: softmax(x))
"""


def test_what_fills_the_card_is_not_refused_for_it(server: ForkServer, tmp_path: Path) -> None:
    """Arguments and results of both arms fit, and no copy of them."""
    kernel = KERNEL.replace("row = tl.program_id(0)", "row = tl.program_id(0).to(tl.int64)")
    checkouts = []
    for name in ("origin", "candidate"):
        write(tmp_path / name, {"kernel.py": kernel, "test_kernel.py": BIG})
        checkouts.append(Checkout(tmp_path / name, (tmp_path / name,), "kernel.py"))
    origin, candidate = checkouts
    names = [f"test_kernel.py::{name}" for name in ("test_right", "test_perf")]
    plan = TestPlan(("test_kernel.py",), (names[0],), (names[1],))
    with judging(server, plan, tmp_path) as judge:
        verified = judge.verify(candidate, deadline_in(100), origin=origin)
        assert isinstance(verified, Verification), verified.reason
        compared = judge.compare(origin, candidate, None, deadline_in(200))
        assert isinstance(compared, Comparison), compared


def test_a_kernel_without_an_end_is_gone_and_the_next_candidate_is_judged(
    judge: PytestJudge, tmp_path: Path
) -> None:
    origin = edited(tmp_path / "origin")
    endless = edited(
        tmp_path / "endless",
        (
            "    e = tl.exp(x - tl.max(x, axis=0))\n",
            "    e = tl.exp(x - tl.max(x, axis=0))\n"
            "    while tl.max(tl.load(x_ptr + offsets, mask=mask, other=0.0).abs()) < 1e30:\n"
            "        e += 0.0\n",
        ),
    )
    begin = time.monotonic()
    outcome = judge.verify(endless, deadline_in(20), origin=origin)
    assert isinstance(outcome, Failure), outcome
    assert outcome.status is Status.CRASH
    assert time.monotonic() - begin < 25
    passed = judge.verify(edited(tmp_path / "next"), deadline_in(100), origin=origin)
    assert isinstance(passed, Verification), passed
    assert GPU is not None
    with closing(watched(GPU)) as watch:
        seen = watch.look()
        assert seen is not None and not seen.foreign_pids
