"""Entries on files with a test of their own below a line: agreeing, failing, differing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.public_agreement import differences, report
from benchmarks.public_kernels import KERNELS
from benchmarks.public_tests import Outcome

pytest.importorskip("triton", reason="triton is not installed")

ROOT = Path(__file__).parents[2]
KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, x * 2, mask=offsets < n)


def scale(x):
    y = torch.empty_like(x)
    block = 64
    scale_kernel[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), BLOCK=block)
    return y
"""
LINE = f"\n\n{'#' * 146}\n\n"
TEST = """
def test_scale():
    x = torch.randn(100, device="cuda")
    return {"test_case_1": scale(x).shape}


result_gold = test_scale()
"""


def clone_with(tmp_path: Path, **texts: str) -> Path:
    """A clone of the benchmark with these files in its set G."""
    folder = tmp_path / "bench" / KERNELS
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    return tmp_path / "bench"


@pytest.mark.full
def test_each_variant_runs_by_the_files_own_test(tmp_path: Path) -> None:
    """What the functions return is compared, which the test throws away."""
    noise = KERNEL.replace("return y", "return y + __import__('time').time_ns() % 1_000_003")
    bench = clone_with(
        tmp_path,
        scale=KERNEL + LINE + TEST,
        broken=f"{KERNEL}{LINE}raise OSError('no such file')\n",
        noise=noise + LINE + TEST,
    )
    out = tmp_path / "out"
    words = [sys.executable, "-m", "benchmarks.public_agreement", str(out), str(bench)]
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    known = json.loads((out / "public_agreement.json").read_text())
    assert known["broken"]["left_out"] == "OSError: no such file"
    assert known["noise"]["left_out"] == "differs from itself"
    assert known["scale"]["left_out"] == ""
    entries = {variant["entry"] for variant in known["scale"]["variants"]}
    assert {"add-autotune", "warps-and-stages"} <= entries
    assert "1 of 3 files, " in (out / "public_agreement.md").read_text()
    del environment["TRITON_INTERPRET"]
    done = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert "set TRITON_INTERPRET=1" in done.stderr


X = torch.tensor([1.0, 2.0, float("nan"), float("inf")])


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (X.clone(), ""),
        (X * (1 + 2e-6), ""),
        (X * 1.001, "is off by 0.001"),
        (torch.tensor([1.0, 2.0, 0.0, float("inf")]), "not finite"),
        (torch.tensor([1.0, float("nan"), float("nan"), float("inf")]), "is off by nan"),
        (X.double(), "is torch.float64"),
        (X[:3], "is torch.float32 [3]"),
    ],
)
def test_what_is_more_than_rounding_is_a_fault(other: torch.Tensor, told: str) -> None:
    (found,) = differences(Outcome(values={"y": X}), Outcome(values={"y": other})) or [""]
    assert (told in found) and bool(found) == bool(told)


def test_integers_are_equal_or_a_fault() -> None:
    one, other = torch.tensor([1, 2, 3]), torch.tensor([1, 2, 4])
    found = differences(Outcome(values={"y": one}), Outcome(values={"y": other}))
    assert found == ["y has 1 other elements of 3"]
    assert differences(Outcome(values={"y": one}), Outcome("fails")) == ["fails"]
    assert differences(Outcome(values={"y": one}), Outcome()) == ["it gives other tensors"]


def test_a_fault_stands_in_the_report() -> None:
    variants = [
        {"entry": "block-size", "params": "{'BLOCK': 128}", "fault": ""},
        {"entry": "block-size", "params": "{'BLOCK': 256}", "fault": "y is off by 0.5"},
    ]
    known = {"softmax": {"left_out": "", "variants": variants}}
    text = report(known | {"other": {"left_out": "OSError: gone", "variants": []}})
    assert "1 of 2 files, 2 variants, 1 faults." in text
    assert "| block-size | 1 | 2 | 1 |" in text
    assert "- 1 left out: fails by itself" in text
    assert "- softmax: block-size {'BLOCK': 256}: y is off by 0.5" in text
