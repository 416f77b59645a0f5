"""`tile-agent capture` of calls that differ from the same ones again: no test can hold them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from agent.capture.calls import CallTime, Capture, CapturedCall
from agent.capture.cases import entries
from agent.capture.files import CaptureFiles
from agent.capture.test_file import CapturedSource
from agent.captured import CapturedTests
from agent.captured_trial import not_checked, without_failing
from agent.errors import ExitCode
from tests.support.project import KERNEL as DOUBLE
from tests.support.project import Outcome, tile_agent
from tests.support.repo import isolate, make_repo, snapshot
from tests.support.warm_python import warm_interpreter

SCATTER = '''\
"""Writes rows where an index says, and other ways to give another result each time."""

import sys

import torch
import triton
import triton.language as tl


@triton.jit
def scatter_kernel(x_ptr, place_ptr, y_ptr, count, n_cols, TURNED: tl.constexpr):
    row = tl.program_id(0)
    if TURNED:  # programs in another order, as on a GPU
        row = count - 1 - row
    cols = tl.arange(0, 8)
    place = tl.load(place_ptr + row)
    values = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols)
    tl.store(y_ptr + place * n_cols + cols, values, mask=cols < n_cols)


def scatter(x, place, y):
    sys.calls = getattr(sys, "calls", 0) + 1  # of all copies of this file
    count, n_cols = x.shape
    scatter_kernel[(count,)](x, place, y, count, n_cols, TURNED=sys.calls % 2)


def counted(x, place):
    y = torch.zeros_like(x)
    scatter(x, place, y)
    return y + sys.calls


def logarithm(x):
    y = torch.zeros_like(x)
    scatter(x, torch.arange(len(x), dtype=torch.int32), y)
    return y.log()
'''
BEGIN = "import torch\nfrom scatter import *\ntorch.manual_seed(0)\nx = torch.randn(40, 6)\n"
TWICE = "scatter(x, torch.randint(0, 40, (40,), dtype=torch.int32), torch.zeros(50, 6))\n"
OTHER = "counted(x, torch.arange(40, dtype=torch.int32))\n"
NAN = "logarithm(x)\n"
KERNEL, CAPTURED = "scatter.py", "test_scatter_captured.py"


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return make_repo(tmp_path, {KERNEL: SCATTER})


def capture(repo: Path, script: str) -> Outcome:
    given = ("capture", "--kernel", KERNEL, "--json", "--", warm_interpreter(), "-c", script)
    return tile_agent(repo, *given, env=dict(os.environ))


@pytest.mark.full
def test_places_are_drawn_distinct_and_what_differs_all_the_same_is_left_out(repo: Path) -> None:
    done = capture(repo, BEGIN + TWICE + OTHER + NAN)
    assert done.code == 0, done.err
    text = (repo / CAPTURED).read_text()
    assert "distinct((40,), torch.int32, below=40),  # place" in text
    assert "def test_logarithm(" in text
    assert "counted" not in text
    distinct, left_out = (note for note in done.json["notes"] if "kind of calls" in note)
    assert distinct.startswith("1 kind of calls differed from the same one again")
    assert left_out.startswith("1 kind of calls left out, which fail on the code itself: ")
    assert "test_counted[40x6-40-float32]: AssertionError: Tensor-likes are not close!" in left_out
    command = [warm_interpreter(), "-m", "pytest", "-q", "-p", "no:cacheprovider", CAPTURED]
    passed = subprocess.run(command, cwd=repo, capture_output=True, text=True, check=False)
    assert passed.returncode == 0, passed.stdout  # NaN, where the origin has it
    assert re.search(r"\b4 passed", passed.stdout)


def test_where_nothing_else_is_left_nothing_is_written(repo: Path) -> None:
    before = snapshot(repo)
    done = capture(repo, BEGIN + OTHER)
    assert done.code == 4
    assert "every call fails on the code itself: test_counted" in done.json["error"]
    assert snapshot(repo) == before


BEYOND = f"""{DOUBLE}

def ahead(x):
    y = torch.empty_like(x)
    double_kernel[(1,)](x[8:], y, x.numel(), BLOCK_SIZE=BLOCK_SIZE)
    return y[:8]
"""


@pytest.mark.parametrize("calls", ["ahead(x)", "double(x)\nahead(x)"], ids=["alone", "beside"])
def test_calls_that_reach_out_of_bounds_are_told_as_a_run_tells_them(
    repo: Path, calls: str
) -> None:
    (repo / KERNEL).write_text(BEYOND)
    done = capture(repo, f"import torch\nfrom scatter import *\nx = torch.ones(100)\n{calls}\n")
    told = " ".join((done.json.get("error", ""), *done.json.get("notes", ())))
    assert "which fail on the code itself" in told if "double" in calls else done.code == 4
    assert re.search(
        r"test_ahead\[100-float32\]: OutOfBounds: double_kernel loads up to 32 bytes behind the "
        r"end of x_ptr \(float32\[92\], 400 bytes\) in program \(0, 0, 0\) at scatter\w*\.py:14: "
        r"mend its mask or its offsets",
        told,
    ), told
    if "double" in calls:
        text = (repo / CAPTURED).read_text()
        assert "def test_double(" in text and "def test_ahead(" not in text


WEIGHTS = f"""{DOUBLE}

def backward(x, weight):
    assert weight.zeroed, "not set"
    y = weight.main_grad
    double_kernel[(1,)](x, y, x.numel(), BLOCK_SIZE=BLOCK_SIZE)
    weight.zeroed = False


def owned(x, weight):
    assert weight.owner is not None
    backward(x, weight)
"""
WEIGHT = """\
import torch
from scatter import *
x, weight = torch.ones(100), torch.nn.Parameter(torch.ones(100))
weight.main_grad, weight.zeroed = torch.empty(100), True
"""


def test_what_is_set_on_a_tensor_is_in_its_test_or_told(repo: Path) -> None:
    """As Megatron sets `main_grad`, which kernels write to."""
    (repo / KERNEL).write_text(WEIGHTS)
    again = "weight.zeroed, weight.owner = True, object()\nowned(x, weight)\n"
    done = capture(repo, f"{WEIGHT}backward(x, weight)\n{again}")
    assert done.code == 0, done.err
    text = (repo / CAPTURED).read_text()
    assert "def test_backward(" in text and "def test_owned(" not in text
    (left_out,) = (note for note in done.json["notes"] if "kind of calls" in note)
    assert left_out.endswith(
        "; weight carries the attribute owner, which a captured test does not make"
    )
    broken = WEIGHTS.replace("    weight.zeroed = False", "    y[7] = 5")
    (repo / KERNEL).write_text(broken)
    command = [warm_interpreter(), "-m", "pytest", "-q", "-p", "no:cacheprovider", CAPTURED]
    wrong = subprocess.run(command, cwd=repo, capture_output=True, text=True, check=False)
    assert "Mismatched elements: 1 / 100" in wrong.stdout  # what was written there is compared


def test_a_call_that_empties_a_list_is_tried_and_timed_again_and_again(repo: Path) -> None:
    """As a backward pass of its own does with its context."""
    emptied = "\n\ndef emptied(context):\n    x = context.pop()\n    context[0].copy_(double(x))\n"
    (repo / KERNEL).write_text(f"{DOUBLE}{emptied}    context.clear()\n")
    script = "import torch\nfrom scatter import *\nemptied([torch.empty(100), torch.ones(100)])\n"
    assert capture(repo, script).code == 0
    command = [warm_interpreter(), "-m", "pytest", "-q", "-p", "no:cacheprovider", CAPTURED]
    passed = subprocess.run(command, cwd=repo, capture_output=True, text=True, check=False)
    assert re.search(r"\b2 passed", passed.stdout), passed.stdout
    kernel = repo / KERNEL
    kernel.write_text(
        kernel.read_text().replace("    context.clear", "    context[0][7] = 5\n    context.clear")
    )
    wrong = subprocess.run(command, cwd=repo, capture_output=True, text=True, check=False)
    assert "Mismatched elements: 1 / 100" in wrong.stdout  # though the list is empty then


def test_a_command_that_fails_after_its_calls_gives_their_tests(repo: Path) -> None:
    """A benchmark that times everything, and then writes to its author's home."""
    done = capture(repo, BEGIN + NAN + "open('/no/such/folder/results.json', 'w')\n")
    assert done.code == 0, done.err
    assert "def test_logarithm(" in (repo / CAPTURED).read_text()
    (note,) = (note for note in done.json["notes"] if "failed" in note)
    assert note.startswith("the command failed (exit code 1) after calls that are kept")


def test_what_could_not_be_run_again_is_not_called_mended(tmp_path: Path) -> None:
    """The first look finds what fails, the second ends without an answer."""
    shape = {"shape": [4], "strides": [1], "offset": 0, "aligned": True, "on_cpu": True}
    fact = {
        **shape,
        "kind": "tensor",
        "dtype": "int32",
        "requires_grad": False,
        "memory": 0,
        "contents": {"kind": "integers", "low": 0, "high": 3, "values": [0, 1, 1, 3]},
    }
    times = (CallTime(1), CallTime(), 1)
    call = CapturedCall("m", "f", (fact,), {}, ("x",), None, False, "", ("k",), *times)
    seen = Capture((call,), "", False, 0, (), False, ())
    places = CaptureFiles.of(tmp_path / "m.py", tmp_path / "test_m.py")
    source = CapturedSource("m.py", "", "c", "today", "m_origin.py")
    found = CapturedTests(places, source, b"", seen, entries(seen))
    answers: Iterator[Mapping[tuple[str, str], str] | str]
    answers = iter([{("test_f", "4-int32"): "differs"}, "killed"])
    assert without_failing(found, lambda _: next(answers)).notes == (not_checked("killed"),)


@pytest.mark.full
def test_a_run_begins_with_what_is_left(repo: Path) -> None:
    command = f"{warm_interpreter()} -c '{BEGIN}{OTHER}{TWICE}{NAN}'"
    given = ("run", "--kernel", KERNEL, "--capture", command, "--time-budget-s", "1", "--json")
    end = tile_agent(repo, *given, "--yes", env=dict(os.environ))
    assert end.code == ExitCode.NO_IMPROVEMENT, end.err  # nothing of the playbook applies here
    assert "tests      2 correctness, 2 perf" in end.err
    assert any("1 kind of calls left out" in note for note in end.json["notes"])
