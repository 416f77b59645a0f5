"""Mutants are judged in Triton's interpreter, and what became of them is counted."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pandas as pd
import pytest

from agent.frozen_tests import TestPlan
from agent.measuring.decision import Status
from agent.measuring.measurement import Failure
from benchmarks.mutants import Mutant, Origin
from benchmarks.mutation_judging import refused_by
from benchmarks.mutation_report import figures, report
from benchmarks.mutations import judge_all, main, read
from benchmarks.spec import Spec
from tests.benchmarks.test_loop_run import needs_triton
from tests.support.project import KERNEL
from tests.support.repo import isolate, write
from tests.support.warm_python import warm_interpreter

REFERENCE = """\
import torch


def inputs(n, dtype):
    return (torch.arange(n, dtype=dtype),)
"""
TEST = """\
import pytest
import torch
from double import double
from reference import inputs


@pytest.mark.parametrize("n", [1, 200])
def test_double_triton(n):
    (x,) = inputs(n, torch.float32)
    expected = 2 * x
    torch.testing.assert_close(double(x), expected)


@pytest.mark.parametrize(("n", "dtype"), [(1024, torch.float32)])
def test_perf_double_triton(n, dtype, tile_bench):
    (x,) = inputs(n, dtype)
    tile_bench(lambda: double(x))
"""
FILES = {
    "double.py": KERNEL,
    "reference.py": REFERENCE,
    "test_double.py": TEST,
    "pyproject.toml": "[tool.pytest]\n",
}
PLAN = TestPlan(
    files=("test_double.py",),
    correctness=("test_double.py::test_double_triton[1]",),
    perf=("test_double.py::test_perf_double_triton[1024]",),
)


@pytest.fixture
def origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Origin:
    """A kernel that doubles a vector; its tests see one block of it, its timing four."""
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    folder = tmp_path / "triton" / "double"
    write(folder, FILES)
    return Origin(Spec("triton", "double", folder), "test_double.py", ("reference.py", "inputs"))


def mutant(origin: Origin, before: str, after: str) -> Mutant:
    """A mutant made by hand."""
    assert origin.text.count(before) == 1
    return Mutant(origin, "by-hand", 1, origin.text.replace(before, after))


@needs_triton
@pytest.mark.full
def test_mutants_in_the_interpreter(origin: Origin, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    made = {
        "three": mutant(origin, "2 * tl.load", "3 * tl.load"),
        "out of bounds": mutant(origin, "offsets < n", "offsets <= n"),
        "one block": mutant(origin, "tl.program_id(0) * BLOCK_SIZE", "0 * BLOCK_SIZE"),
        "over its input": mutant(origin, "torch.empty_like(x)", "x"),
        "no fault": mutant(origin, "2 * tl.load", "2.0 * tl.load"),
        "rounding": mutant(origin, "2 * tl.load", "2.0000005 * tl.load"),
        "left": mutant(origin, "2 * tl.load", "two * tl.load"),
    }
    python = warm_interpreter()
    assert judge_all(list(made.values())[:6], out, math.inf, python) == 0
    left = made.pop("left")
    rows = read((out / "rows").glob("*.csv"))
    assert list(rows["mutant"]) == [each.key for each in made.values()]
    found = dict(zip(made, zip(rows["effect"], rows["caught_by"], strict=True), strict=True))
    assert found == {
        "three": ("result", "tests"),
        "out of bounds": ("error", "guards"),
        "one block": ("result", ""),
        "over its input": ("result", ""),
        "no fault": ("none", ""),
        "rounding": ("rounding", ""),
    }
    where = dict(zip(made, rows["where"], strict=True))
    assert where["one block"] == "n=1024, dtype=torch.float32"
    shutil.rmtree(origin.spec.folder)  # nothing is opened for what is there, or for no time
    assert judge_all(list(made.values()), out, math.inf, python) == 0
    assert judge_all([*made.values(), left], out, -math.inf, python) == 1


@pytest.mark.parametrize(
    ("reason", "status", "by"),
    [
        ("test_double.py::test_double_triton[1]: assert 1 == 2", Status.REVERT, "tests"),
        ("test_double.py::test_double_triton[1] (and 1 more): E", Status.CRASH, "tests"),
        ("test_double.py: NameError: name 'two' is not defined", Status.CRASH, "tests"),
        ("timed out: no answer after 120 s; killed", Status.CRASH, "tests"),
        ("the worker was killed by SIGSEGV", Status.CRASH, "tests"),
        ("test_double.py::test_double_triton[1]: OutOfBounds: loads", Status.CRASH, "guards"),
        ("test_double.py::test_double_triton[1] passes without a launch", Status.REVERT, "checks"),
        ("test_double.py::test_perf_double_triton[1024]: off", Status.REVERT, "checks"),
        ("test_double.py::test_perf_double_triton[1024]: off", Status.CRASH, "checks"),
        ("the result differs at 1024", Status.REVERT, "checks"),
    ],
)
def test_who_refuses_it(reason: str, status: Status, by: str) -> None:
    assert refused_by(Failure(status, correct=False, reason=reason), PLAN) == by


ROWS = pd.DataFrame(
    [
        ("a", "softmax", "mask", "1", "result", "", "tests", "off", "1", "-a\n+b"),
        ("b", "softmax", "mask", "2", "error", "", "guards", "off", "1", "-a\n+c"),
        ("c", "softmax", "grid", "3", "result", "", "checks", "off", "1", "-a\n+d"),
        ("d", "softmax", "grid", "4", "result", "m=5", "", "", "1", "-a\n+survivor"),
        ("e", "matmul", "mask", "5", "none", "", "", "", "1", "-a\n+f"),
        ("f", "matmul", "mask", "6", "rounding", "", "checks", "off", "1", "-a\n+g"),
    ],
    columns=[
        "mutant",
        "kernel",
        "mutator",
        "line",
        "effect",
        "where",
        "caught_by",
        "reason",
        "seconds",
        "diff",
    ],
)


def test_the_figures() -> None:
    found = figures(ROWS, "kernel")
    assert found.loc["softmax"].to_dict() == {
        "mutants": 4,
        "no result changed": 0,
        "rounding only": 0,
        "faults": 4,
        "tests alone": 1,
        "with bounds": 2,
        "all checks": 3,
        "refused without a fault": 0,
    }
    assert found.loc["matmul", "faults"] == 0
    assert found.loc["matmul", "refused without a fault"] == 1
    assert list(figures(ROWS, "mutator")["faults"]) == [2, 2]


def test_the_report_shows_shares_and_survivors() -> None:
    text = report(ROWS)
    assert "| **all** | 6 | 1 | 1 | 4 | 1 | 1 of 4, 25.0 % | 2 of 4, 50.0 % " in text
    assert "| matmul | 2 | 1 | 1 | 0 | 1 | - | - | - |" in text
    survivors = text.partition("## Faults that survive")[2]
    assert "softmax:4, grid: result at m=5" in survivors
    assert "+survivor" in survivors
    assert survivors.count("```diff") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kernels", "sofmax"], "no kernel sofmax"),
        (["--kernels", "cutile", "--device", "cpu"], "kernels of cuTile run on a GPU only"),
        (["--device", "cuda"], "there is no NVIDIA GPU here"),
    ],
)
def test_what_cannot_be_done_is_refused(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path / "out"), *arguments])
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
