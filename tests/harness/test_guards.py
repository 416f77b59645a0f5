"""Triton's interpreter under guard: what reaches out of bounds, and what differs from itself."""

from __future__ import annotations

import os
import re
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from agent.frozen_tests import TestPlan
from agent.harness.measuring.pytest_judge import PytestJudge
from agent.harness.measuring.verifier import Verification
from agent.harness.processes.worker_session import deadline_in
from agent.measuring.decision import Rules
from tests.support.warm_python import warm_interpreter
from tests.support.workers import Project, start_server

pytest.importorskip("triton", reason="triton is not installed")

KERNELS = """\
import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, y_ptr, n, shift, extra, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets + shift, mask=offsets < n, other=0.0)
    tl.store(y_ptr + offsets, 2 * x, mask=offsets < n + extra)


@triton.jit
def careless_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr, tl.sum(x))


@triton.jit
def careful_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, 2 * x, mask=offsets < n)


@triton.jit
def count_kernel(x_ptr, counts_ptr, BLOCK: tl.constexpr):
    tl.atomic_add(counts_ptr + tl.load(x_ptr + tl.arange(0, BLOCK)), 1)


@triton.jit
def table_kernel(table_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x_ptr = tl.load(table_ptr).to(tl.pointer_type(tl.float32))
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets) + 1)


@triton.jit
def descriptor_kernel(x_desc, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    tl.store(y_ptr + offsets, x_desc.load([0, 0]))


@triton.jit
def last_kernel(y_ptr):
    tl.store(y_ptr, tl.program_id(0))
"""
TESTS = """\
import pytest
from tests.support.warm_python import warm_interpreter
from triton.tools.tensor_descriptor import TensorDescriptor

from kernel import *

N = 1000
X = torch.arange(N, dtype=torch.float32)


def double(x, y, shift=0, extra=0):
    double_kernel[(4,)](x, y, N, shift, extra, BLOCK=256)


def test_in_bounds():
    y = torch.zeros(N)
    double(X, y)
    assert torch.equal(y, 2 * X)

def test_in_place():
    x = X.clone()
    double(x, y_ptr := x)
    assert torch.equal(x, 2 * X)

def test_strided_view():
    whole = torch.zeros(3, N)
    double(X, whole[1])
    assert torch.equal(whole[1], 2 * X) and whole[::2].abs().sum() == 0

def test_store_behind():
    double(X, torch.zeros(N), extra=24)

def test_load_behind():
    double(X, torch.zeros(N), shift=3)

def test_load_before():
    double(X, torch.zeros(N), shift=-2)

def test_shared_storage():
    x = X.clone()
    double(x, x, extra=1)

def test_far_away():
    double(X, torch.zeros(N), shift=1 << 20)

def test_atomic_behind():
    count_kernel[(1,)](torch.tensor([0, 1, 2, 9]), torch.zeros(4, dtype=torch.int32), BLOCK=4)

def test_atomic_in_bounds():
    counts = torch.zeros(4, dtype=torch.int32)
    count_kernel[(1,)](torch.tensor([0, 1, 1, 3]), counts, BLOCK=4)
    assert counts.tolist() == [1, 2, 0, 1]

def test_no_element():
    double(X, torch.zeros(0))

def test_pointer_of_an_argument():
    y = X.clone()
    table_kernel[(1,)](torch.tensor([y.data_ptr()]), y, BLOCK=8)
    assert torch.equal(y[:8], X[:8] + 1) and torch.equal(y[8:], X[8:])

def test_pointer_of_another_tensor():
    y = torch.zeros(8)
    table_kernel[(1,)](torch.tensor([X.data_ptr()]), y, BLOCK=8)
    assert torch.equal(y, X[:8] + 1)

def test_descriptor():
    x, y = X.view(25, 40), torch.ones(32, 32)
    desc = TensorDescriptor.from_tensor(x, [32, 32])
    descriptor_kernel[(1,)](desc, y, BLOCK=32)
    assert torch.equal(y[:25], x[:, :32]) and y[25:].abs().sum() == 0

def test_careless():
    y = torch.zeros(1)
    careless_kernel[(1,)](X[:6], y, 6, BLOCK=8)
    assert y == 15

def test_careful():
    careful_kernel[(1,)](X[:6], torch.zeros(6), 6, BLOCK=8)

def test_order():
    y = torch.zeros(1, dtype=torch.int32)
    last_kernel[(4,)](y)
    assert y == 3

def test_suspended(tile_bench):
    double(X, torch.zeros(N + 24), extra=24)
"""
FAULTS = {
    "test_store_behind": "double_kernel stores up to 96 bytes behind the end of y_ptr "
    "(float32[1000], 4000 bytes) in program (3, 0, 0) at kernel.py:10: mend its mask",
    "test_load_behind": "double_kernel loads up to 12 bytes behind the end of x_ptr",
    "test_load_before": "double_kernel loads up to 8 bytes before the beginning of x_ptr "
    "(float32[1000], 4000 bytes) in program (0, 0, 0)",
    "test_shared_storage": "double_kernel stores up to 4 bytes behind the end of x_ptr = y_ptr",
    "test_far_away": "behind the end of",
    "test_atomic_behind": "count_kernel stores up to 24 bytes behind the end of counts_ptr "
    "(int32[4], 16 bytes)",
    "test_no_element": "behind the end of y_ptr (float32[0], 0 bytes)",
}
NOTES = {
    "careless_kernel: y_ptr depends on what a load gives for lanes masked off without `other`",
    "last_kernel: y_ptr depends on the order in which its programs run",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("guards")
    (made / "kernel.py").write_text(KERNELS)
    (made / "test_kernel.py").write_text(TESTS)
    return made


def run(folder: Path, *options: str) -> tuple[dict[str, str], str]:
    """Each test of the project with the text of its failure, and what the terminal says."""
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    arguments = ["-p", "no:tile_agent", "-p", "tile_agent_pytest.plugin", f"--junitxml={report}"]
    done = subprocess.run(
        [warm_interpreter(), "-m", "pytest", "-q", "--color=no", *arguments, *options],
        cwd=folder,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    cases = ElementTree.parse(report).iter("testcase")
    return {
        case.get("name", ""): "".join(f.get("message", "") for f in case.iter("failure"))
        for case in cases
    }, done.stdout


@pytest.fixture(scope="module")
def guarded(folder: Path) -> tuple[dict[str, str], str]:
    return run(folder, "--triton-guards", "--triton-repeat")


def test_only_what_is_out_of_bounds_fails(guarded: tuple[dict[str, str], str]) -> None:
    outcomes, _ = guarded
    assert {name for name, failure in outcomes.items() if failure} == set(FAULTS)
    assert len(outcomes) == TESTS.count("def test_")


@pytest.mark.parametrize("name", FAULTS)
def test_kernel_argument_and_distance_are_named(
    name: str, guarded: tuple[dict[str, str], str]
) -> None:
    failure = guarded[0][name]
    assert FAULTS[name] in failure
    assert re.match(r"tile_agent_pytest\.guards\.OutOfBounds: .*: mend its mask", failure)


def test_what_differs_from_itself_is_told(guarded: tuple[dict[str, str], str]) -> None:
    told = guarded[1].partition("Triton kernels that differ from themselves")[2]
    assert {line for line in told.splitlines() if " depends on " in line} == NOTES


def test_without_the_option_nothing_is_watched(folder: Path) -> None:
    outcomes, told = run(folder, "-k", "load_behind or careless")
    assert set(outcomes.values()) == {""}
    assert "differ from themselves" not in told


def test_workers_watch_where_triton_is_interpreted(folder: Path, tmp_path: Path) -> None:
    test = "from kernel import *\n\ndef test_it(): {0}[(1,)](torch.ones(6), torch.ones({1}), {2})\n"
    project = Project(tmp_path, test.format("careful_kernel", 5, "6, BLOCK=8"), KERNELS)
    with start_server(tmp_path / "server.log", TRITON_INTERPRET="1") as server:
        (result,) = project.run(server).tests
    assert result.exception == "OutOfBounds"
    assert "careful_kernel stores up to 4 bytes behind the end of y_ptr" in result.headline


def test_the_baseline_is_told_of_a_kernel_that_differs_from_itself(tmp_path: Path) -> None:
    test = "from kernel import *\n\ndef test_it(): careless_kernel[(1,)](X, torch.zeros(1), 6, 8)\n"
    project = Project(tmp_path / "project", f"{test}\nX = torch.ones(6)\n", KERNELS)
    (tmp_path / "logs").mkdir()
    plan = TestPlan(("test_kernel.py",), ("test_kernel.py::test_it",), ())
    with start_server(tmp_path / "server.log", TRITON_INTERPRET="1") as server:
        judge = PytestJudge(server, plan, framework="triton", rules=Rules(), logs=tmp_path / "logs")
        baseline = judge.verify(project.checkout(), deadline_in(60), may_skip=True)
        candidate = judge.verify(project.checkout(), deadline_in(60))
    assert isinstance(baseline, Verification)
    assert "careless_kernel: y_ptr depends on what a load gives" in baseline.notes[0]
    assert isinstance(candidate, Verification) and candidate.notes == ()
