"""The benchmark over kernels that have a script and no tests, on a small one of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.loop_run import commit_all
from benchmarks.public_kernels import by_rule, capture, kernels_of, lay_out, row, work_on
from tests.support.project import KERNEL
from tests.support.repo import git, isolate
from tests.support.warm_python import warm_interpreter

SCRIPT = """\
import sys, os
sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), "..")))
import torch
from TritonBench_v1.double import double
import performance_utils

for n in (1000, 5000):
    double(torch.randn(n))
"""


def test_the_rule_takes_every_23rd() -> None:
    known = [f"k{n:03}" for n in range(1, 60)]
    assert by_rule(known, [3, 12]) == ["k003", "k026", "k049", "k012", "k035", "k058"]


@pytest.mark.full
def test_a_kernel_gets_tests_of_its_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(sys, "executable", warm_interpreter())
    files = {
        "data/TritonBench_G_v1/double.py": KERNEL,
        "data/TritonBench_G_v1/another.py": "",
        "performance_metrics/perf_G/golden_metrics/double_perf.py": SCRIPT,
        "performance_metrics/perf_G/performance_utils.py": "",
    }
    clone = tmp_path / "clone"
    for place, text in files.items():
        (clone / place).parent.mkdir(parents=True, exist_ok=True)
        (clone / place).write_text(text)
    commit_all(clone)
    assert kernels_of(clone) == ["another", "double"]
    folder = lay_out(clone, "double", tmp_path / "out")
    captured = capture(folder)
    assert captured["code"] == 0, (folder.parent / "capture.log").read_text()
    assert capture(folder) == captured
    assert "test_double_captured.py" in git(folder, "ls-files")
    assert git(folder, "status", "--porcelain") == ""
    record = work_on("double", folder, captured, limit_s=0.0)
    assert "| no time for a run |" in row(record)
