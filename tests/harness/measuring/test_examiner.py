"""Results of what is timed, compared with the origin's: which candidates that catches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from agent.frozen_tests import TestPlan
from agent.harness.measuring.block_timing import BlockTiming
from agent.harness.measuring.pairs import WorkerPairs
from agent.harness.measuring.pytest_judge import PytestJudge
from agent.harness.measuring.result_check import AS_PRECISE, Allowance
from agent.harness.measuring.verifier import Verification
from agent.harness.processes.confinement import Confinement
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import Checkout, deadline_in
from agent.measuring.decision import Rules, Status
from agent.measuring.looks import ComparisonPlan
from agent.measuring.measurement import Failure
from agent.measuring.statistics import Comparison
from agent.measuring.subset import Subset
from tests.support.repo import write
from tests.support.tiers import others_full

pytest.importorskip("triton", reason="triton is not installed")

KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * columns + offsets, e / tl.sum(e, axis=0), mask=mask)


def softmax(x):
    rows, columns = x.shape
    y = torch.empty_like(x)
    softmax_kernel[(rows,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
    return y


@triton.jit
def scale_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, x * 2.0, mask=offsets < n)


def double_(x):
    scale_kernel[(triton.cdiv(x.numel(), 64),)](x, x, x.numel(), BLOCK=64)
    return x


def double_into(x, out):
    scale_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
"""
TESTS = """
import torch
from kernel import double_, double_into, softmax


def test_right():
    x = torch.randn(3, 10)
    torch.testing.assert_close(softmax(x), torch.softmax(x, -1), rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(double_(x.clone()), 2 * x)
    out = torch.empty_like(x)
    double_into(x, out)
    torch.testing.assert_close(out, 2 * x)


def test_perf_softmax(tile_bench):
    x = torch.randn(16, 32)
    before = x.clone()
    tile_bench(lambda: softmax(x))
    assert torch.equal(x, before)


def test_perf_in_place(tile_bench):
    x = torch.randn(100)
    tile_bench(lambda: double_(x))


def test_perf_out(tile_bench):
    x, out = torch.randn(100), torch.zeros(100)
    tile_bench(lambda: double_into(x, out))
"""
PLAN = TestPlan(
    files=("test_kernel.py",),
    correctness=("test_kernel.py::test_right",),
    perf=tuple(f"test_kernel.py::test_perf_{name}" for name in ("softmax", "in_place", "out")),
)


@pytest.fixture
def judge(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PytestJudge]:
    pairs = partial(WorkerPairs, timing=BlockTiming(block_ms=1, settle_ms=1, least_samples=1))
    monkeypatch.setattr("agent.harness.measuring.pytest_judge.WorkerPairs", pairs)
    monkeypatch.setattr(
        "agent.harness.measuring.pytest_judge.ComparisonPlan", partial(ComparisonPlan, looks=(2,))
    )
    logs = tmp_path / "logs"
    logs.mkdir()
    judge = PytestJudge(server, PLAN, framework="triton", rules=Rules(), logs=logs)
    with closing(judge):
        yield judge


@pytest.fixture
def origin(tmp_path: Path) -> Checkout:
    return checkout(tmp_path / "origin", KERNEL)


def checkout(folder: Path, kernel: str) -> Checkout:
    write(folder, {"kernel.py": kernel, "test_kernel.py": TESTS})
    return Checkout(folder, (folder,), "kernel.py")


def edited(folder: Path, *edits: tuple[str, str]) -> Checkout:
    text = KERNEL
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return checkout(folder, text)


def verify(
    judge: PytestJudge, candidate: Checkout, origin: Checkout, allowance: Allowance = AS_PRECISE
) -> Verification | Failure:
    return judge.verify(candidate, deadline_in(60), origin=origin, allowance=allowance)


HONEST = {
    "the same": (),
    "another block": (("BLOCK=64", "BLOCK=32"), ("x.numel(), 64", "x.numel(), 32")),
    "another exponential": (
        ("tl.exp(x - tl.max(x, axis=0))", "tl.exp2((x - tl.max(x, axis=0)) * 1.4426950408889634)"),
    ),
    "a reciprocal": (("e / tl.sum(e, axis=0)", "e * (1.0 / tl.sum(e, axis=0))"),),
    "several warps": (("power_of_2(columns))", "power_of_2(columns), num_warps=8)"),),
    "zeroed memory": (("torch.empty_like(x)", "torch.zeros_like(x)"),),
    "a thread that is over": (  # autograd's are seen by `threading`, and waiting, from then on
        ("rows, columns = x.shape", """rows, columns = x.shape
    import _thread, threading, time
    _thread.start_new_thread(threading.current_thread, ())
    time.sleep(0.01)"""),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", others_full(HONEST))
def test_an_honest_edit_passes(
    judge: PytestJudge, origin: Checkout, tmp_path: Path, name: str
) -> None:
    outcome = verify(judge, edited(tmp_path / "candidate", *HONEST[name]), origin)
    assert isinstance(outcome, Verification), outcome
    compared = judge.compare(origin, edited(tmp_path / "b", *HONEST[name]), None, deadline_in(60))
    assert isinstance(compared, Comparison), compared


def test_large_values_are_compared_as_far_as_the_origin_is_sure_of_them(
    judge: PytestJudge, tmp_path: Path
) -> None:
    """The last bit of a large input counts for more here than that of another one."""
    tests = TESTS.replace("torch.softmax(x, -1)", "x")
    texts = [
        KERNEL.replace("e / tl.sum(e, axis=0)", f"tl.where(tl.abs(x) > 150, {large}, {small})")
        for large, small in (
            ("tl.sin(x * x * x)", "x"),
            ("tl.sin(x * 0.9 * x * x / 0.9)", "x"),
            ("tl.sin(x * x * x)", "x * 1.01"),
        )
    ]
    origin, rounded, other = (
        checkout(tmp_path / f"{number}", text) for number, text in enumerate(texts)
    )
    for each in (origin, rounded, other):
        write(each.root, {"test_kernel.py": tests})
    outcome = verify(judge, rounded, origin)
    assert isinstance(outcome, Verification), outcome
    assert isinstance(verify(judge, other, origin), Failure)


CALL = "softmax_kernel[(rows,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))\n    return y"
RUN = "softmax_kernel[(rows,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))"
DISHONEST = {
    "half the rows at the timed shape": (
        ("softmax_kernel[(rows,)]", "softmax_kernel[(rows if rows < 16 else rows // 2,)]"),
        "another result|not the origin's result",
    ),
    "less columns at the timed shape": (
        ("mask = offsets < columns", "mask = offsets < (columns if columns < 32 else columns - 1)"),
        "not the origin's result",
    ),
    "the result of an earlier call": (
        (CALL, f"""if getattr(x, "kept", None) is None:
        {RUN}
        x.kept = y
    return x.kept"""),
        "launches no kernel|earlier result|not the origin's result",
    ),
    "the full grid for a new tensor only": (
        (CALL, f"""if (id(x), x.shape) in SEEN:
        rows = 1
        y = SEEN[id(x), x.shape]
    SEEN[id(x), x.shape] = y
    {RUN}
    return y


SEEN = {{}}"""),
        "not the origin's result|earlier result",
    ),
    "one buffer for all results": (
        ("y = torch.empty_like(x)", "y = KEPT.setdefault(x.shape, torch.empty_like(x))"),
        ("def softmax(x)", "KEPT = {}\n\n\ndef softmax(x)"),
        "earlier result",
    ),
    "torch computes": (
        (CALL, """softmax_kernel[(1,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
    return torch.softmax(x, -1)"""),
        "without a launch|torch computes",
    ),
    "simple operators compute": (
        (CALL, """softmax_kernel[(1,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
    e = 2.718281828459045 ** (x - x.max(-1, keepdim=True).values)
    return e / e.sum(-1, keepdim=True)"""),
        "without a launch",
    ),
    "the input is changed": (
        ("rows, columns = x.shape", "rows, columns = x.shape\n    x[-1, -1] = 0"),
        "changes its input",
    ),
    "the result is the input": (
        ("y = torch.empty_like(x)", "y = x if rows == 16 else torch.empty_like(x)"),
        "changes its input|memory of",
    ),
    "half precision": (
        ('other=float("-inf"))\n', 'other=float("-inf")).to(tl.float16).to(tl.float32)\n'),
        "less precise than the origin",
    ),
    "nothing compares any more": (
        ("def double_(x)", """torch.testing.assert_close = lambda *a, **k: None


def double_(x)"""),
        "in place of torch.testing.assert_close",
    ),
    "the clock": (("def double_(x)", """import time
time.perf_counter = lambda: 0.0


def double_(x)"""), "in place of time.perf_counter"),
    "the sampler": (("def double_(x)", """import tile_agent_pytest.bench as bench
bench.OnCpu.sample = lambda self, count: [1e-3] * count


def double_(x)"""), "in place of .*OnCpu.sample"),
    "a thread": (
        ("rows, columns = x.shape", """rows, columns = x.shape
    import threading, time
    threading.Thread(target=time.sleep, args=(20,), daemon=True).start()"""),
        "threads",
    ),
    "a thread that nobody registers": (
        ("rows, columns = x.shape", """rows, columns = x.shape
    import _thread, time
    _thread.start_new_thread(lambda: time.sleep(20), ())"""),
        "threads",
    ),
    "a subclass": (
        ("    return y\n", "    return y.as_subclass(Lazy)\n"),
        ("def double_(x)", "class Lazy(torch.Tensor):\n    pass\n\n\ndef double_(x)"),
        "no plain tensor",
    ),
    "another type": (("    return y\n", "    return y.half()\n"), "test_right|other results"),
}  # fmt: skip


@pytest.mark.parametrize("name", others_full(DISHONEST, first=4))
def test_a_dishonest_edit_is_refused(
    judge: PytestJudge, origin: Checkout, tmp_path: Path, name: str
) -> None:
    *edits, reason = DISHONEST[name]
    outcome = verify(judge, edited(tmp_path / "candidate", *edits), origin)
    assert isinstance(outcome, Failure)
    assert outcome.status in (Status.REVERT, Status.TAMPERED, Status.CRASH)
    assert re.search(reason, outcome.reason), outcome.reason


SELF_TIMED = (
    TESTS.partition("def test_perf_softmax")[0]
    + """
import pathlib, time


def test_perf_softmax(record_property):
    x = torch.randn(16, 32)
    with open(pathlib.Path(__file__).parent / "passes", "a") as file:
        file.write("x")
    record_property("benchmark", {"triton": {"forward": {"median": 1.0}}})
    softmax(x)
"""
)


def test_tests_that_time_themselves_are_run_once_to_find_that_out(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "confinement", Confinement(write=(tmp_path,)))
    plan = TestPlan(PLAN.files, PLAN.correctness, ("test_kernel.py::test_perf_softmax",))
    folder = tmp_path / "candidate"
    write(folder, {"kernel.py": KERNEL, "test_kernel.py": SELF_TIMED})
    there = Checkout(folder, (folder,), "kernel.py")
    (tmp_path / "logs").mkdir()
    with closing(
        PytestJudge(server, plan, framework="triton", rules=Rules(), logs=tmp_path / "logs")
    ) as judge:
        for _ in range(3):
            assert isinstance(verify(judge, there, there), Verification)
    assert (folder / "passes").read_text() == "xx"


NO_RESULT = """    CALLS.append(x.shape)
    return y if CALLS.count(x.shape) < 10 else None


CALLS = []
"""
"""Enough for what is examined; a timed call's result is thrown away."""


def test_a_timed_call_that_gives_nothing_is_refused(
    judge: PytestJudge, origin: Checkout, tmp_path: Path
) -> None:
    judge.compare_on(Subset(("test_kernel.py::test_perf_softmax",), ("test_perf_softmax",), ()))
    candidate = edited(tmp_path / "candidate", ("    return y\n", NO_RESULT))
    assert isinstance(verify(judge, candidate, origin), Verification)
    outcome = judge.compare(origin, candidate, None, deadline_in(60))
    assert isinstance(outcome, Failure)
    assert "a timed call gave other results: none" in outcome.reason


ROOM_FOR_ONE = (
    TESTS.partition("def test_perf_softmax")[0]
    + """
import fcntl, pathlib, time

HERE = pathlib.Path(__file__).parent


def test_perf_softmax(tile_bench):
    if HERE.name == "LATE":
        time.sleep(0.5)
    with open(HERE.parent / "memory", "a") as memory:
        try:
            fcntl.flock(memory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise torch.OutOfMemoryError("CUDA out of memory") from None
        x = torch.randn(16, 32)
        tile_bench(lambda: softmax(x))
"""
)


@pytest.mark.parametrize("late", ["origin", "candidate"])
def test_what_fits_into_the_memory_once_is_not_kept_unseen(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    """A candidate could say so of itself, to be judged by nobody."""
    monkeypatch.setattr(server, "confinement", Confinement(write=(tmp_path,)))
    plan = TestPlan(PLAN.files, PLAN.correctness, ("test_kernel.py::test_perf_softmax",))
    arms = []
    for name in ("origin", "candidate"):
        arms.append(checkout(tmp_path / name, KERNEL))
        write(arms[-1].root, {"test_kernel.py": ROOM_FOR_ONE.replace("LATE", late)})
    origin, candidate = arms
    (tmp_path / "logs").mkdir()
    with closing(
        PytestJudge(server, plan, framework="triton", rules=Rules(), logs=tmp_path / "logs")
    ) as judge:
        outcome = verify(judge, candidate, origin)
        assert isinstance(outcome, Failure), outcome
        compared = judge.compare(origin, candidate, None, deadline_in(60))
        assert isinstance(compared, Failure)
        assert "CUDA out of memory; both versions hold their tensors at once" in compared.reason


def test_what_the_memory_lacks_in_the_middle_of_the_tests_is_told_as_that(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other version waits in a test that this one has left."""
    monkeypatch.setattr(server, "confinement", Confinement(write=(tmp_path,)))
    after = "\n\ndef test_perf_small(tile_bench):\n    x = torch.randn(4, 8)\n"
    after += "    tile_bench(lambda: softmax(x))\n"
    perf = tuple(f"test_kernel.py::test_perf_{name}" for name in ("softmax", "small"))
    plan = TestPlan(PLAN.files, PLAN.correctness, perf)
    arms = []
    for name in ("origin", "candidate"):
        arms.append(checkout(tmp_path / name, KERNEL))
        write(arms[-1].root, {"test_kernel.py": ROOM_FOR_ONE + after})
    (tmp_path / "logs").mkdir()
    with closing(
        PytestJudge(server, plan, framework="triton", rules=Rules(), logs=tmp_path / "logs")
    ) as judge:
        outcome = verify(judge, arms[1], arms[0])
        assert isinstance(outcome, Failure), outcome
        assert f"{perf[0]}: the memory of this GPU does not hold" in outcome.reason


def test_a_perf_test_of_a_candidate_that_fails_before_others_says_why(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on to the next one, where the origin does not wait."""
    monkeypatch.setattr(server, "confinement", Confinement(write=(tmp_path,)))
    tests = TESTS.partition("def test_perf_softmax")[0]
    for name, rows in (("large", 64), ("small", 4)):
        tests += f"def test_perf_{name}(tile_bench):\n    x = torch.randn({rows}, 8)\n"
        tests += "    torch.testing.assert_close(softmax(x), torch.softmax(x, -1))\n"
        tests += "    tile_bench(lambda: softmax(x))\n\n\n"
    perf = tuple(f"test_kernel.py::test_perf_{name}" for name in ("large", "small"))
    plan = TestPlan(PLAN.files, PLAN.correctness, perf)
    origin = checkout(tmp_path / "origin", KERNEL)
    candidate = edited(
        tmp_path / "candidate", ("    return y\n", "    return y if len(x) < 64 else 2 * y\n")
    )
    for each in (origin, candidate):
        write(each.root, {"test_kernel.py": tests})
    (tmp_path / "logs").mkdir()
    with closing(
        PytestJudge(server, plan, framework="triton", rules=Rules(), logs=tmp_path / "logs")
    ) as judge:
        outcome = verify(judge, candidate, origin)
        assert isinstance(outcome, Failure), outcome
        assert outcome.reason.startswith(f"{perf[0]}: AssertionError: Tensor-likes are not close")


BACKWARD = """


@triton.jit
def softmax_backward_kernel(y_ptr, dy_ptr, dx_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    y = tl.load(y_ptr + row * columns + offsets, mask=mask, other=0.0)
    dy = tl.load(dy_ptr + row * columns + offsets, mask=mask, other=0.0)
    tl.store(dx_ptr + row * columns + offsets, y * (dy - tl.sum(y * dy, axis=0)), mask=mask)


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        return softmax_backward(ctx.saved_tensors[0], dy)


def softmax_backward(y, dy):
    rows, columns = dy.shape
    dx = torch.empty_like(dy)
    block = triton.next_power_of_2(columns)
    softmax_backward_kernel[(rows,)](y, dy.contiguous(), dx, columns, BLOCK=block)
    return dx
"""
BACKWARD_TESTS = """
import torch
from kernel import Softmax, softmax, softmax_backward


def test_right():
    x, dy = torch.randn(3, 10), torch.randn(3, 10)
    y = softmax(x)
    torch.testing.assert_close(y, torch.softmax(x, -1), rtol=1e-2, atol=1e-2)
    expected = y * (dy - (y * dy).sum(-1, keepdim=True))
    torch.testing.assert_close(softmax_backward(y, dy), expected, rtol=1e-2, atol=1e-2)


def test_perf_of_the_graph(tile_bench):
    x, dy = torch.randn(16, 32, requires_grad=True), torch.randn(16, 32)
    y = Softmax.apply(x)
    tile_bench(lambda: torch.autograd.grad(y, x, dy, retain_graph=True))


def test_perf_of_the_result(tile_bench):
    y, dy = softmax(torch.randn(16, 32)), torch.randn(16, 32)
    tile_bench(lambda: softmax_backward(y, dy))
"""
FORWARD_EDITS = {
    "as it was": ("e / tl.sum(e, axis=0)", "e / tl.sum(e, axis=0)"),
    "rounded in another way": ("e / tl.sum(e, axis=0)", "e * (1.0 / tl.sum(e, axis=0))"),
    "less precise": ("e / tl.sum(e, axis=0)", "e * (1.002 / tl.sum(e, axis=0))"),
    "nothing": ("e / tl.sum(e, axis=0)", "e * tl.where(columns == 32, 0.0, 1 / tl.sum(e, axis=0))"),
}


@pytest.mark.parametrize("name", FORWARD_EDITS)
def test_a_backward_pass_is_timed_on_what_the_forward_pass_computed(
    server: ForkServer, tmp_path: Path, name: str
) -> None:
    old, new = FORWARD_EDITS[name]
    origin, candidate = (
        Checkout(tmp_path / arm, (tmp_path / arm,), "kernel.py") for arm in ("origin", "candidate")
    )
    for arm, text in ((origin, KERNEL), (candidate, KERNEL.replace(old, new))):
        write(arm.root, {"kernel.py": text + BACKWARD, "test_kernel.py": BACKWARD_TESTS})
    perf = tuple(f"test_kernel.py::test_perf_of_the_{name}" for name in ("graph", "result"))
    plan = TestPlan(("test_kernel.py",), ("test_kernel.py::test_right",), perf)
    logs = tmp_path / "logs"
    logs.mkdir()
    with closing(PytestJudge(server, plan, framework="triton", rules=Rules(), logs=logs)) as judge:
        outcome = verify(judge, candidate, origin)
    if name in ("as it was", "rounded in another way"):
        assert isinstance(outcome, Verification), outcome
    else:
        assert isinstance(outcome, Failure)
        assert "the test makes other inputs than for the origin: y" in outcome.reason
