"""`tile-agent capture` of calls that are given arrays of NumPy, and return one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.environment import probe
from tests.support.project import tile_agent
from tests.support.repo import git, isolate, make_repo
from tests.support.warm_python import warm_interpreter

KERNEL = """\
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, s_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + row * n + offsets, mask=mask)
    tl.store(y_ptr + row * n + offsets, x * tl.load(s_ptr + row), mask=mask)


def scaled(x, scales):
    x, s = torch.from_numpy(x), torch.from_numpy(scales)
    y = torch.empty_like(x)
    scale_kernel[(x.shape[0],)](x, s, y, x.shape[1], BLOCK=64)
    return y.numpy()
"""
SCRIPT = """\
import numpy as np
from scale import scaled

scaled(np.ones((5, 40), dtype=np.float32), np.linspace(1, 2, 5, dtype=np.float32))
"""


@pytest.mark.full
def test_captured_tests_make_arrays_and_judge_those_that_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    repo = make_repo(tmp_path, {"scale.py": KERNEL, "script.py": SCRIPT, "tests/x.txt": ""})
    given = ("--kernel", "scale.py")
    command = (warm_interpreter(), "script.py")
    done = tile_agent(repo, "capture", *given, "--json", "--", *command, env=dict(os.environ))
    assert done.code == 0, done.err
    assert done.json["notes"] == []
    captured = next((repo / "tests").glob("*_captured.py"))
    assert ".numpy(force=True)" in captured.read_text()
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "captured")
    judged = tile_agent(repo, "verify", *given, env=dict(os.environ))
    assert judged.code == 0, judged.err
    (repo / "scale.py").write_text(KERNEL.replace("return y.numpy()", "return 2 * y.numpy()"))
    alone = [warm_interpreter(), "-m", "pytest", "-q", "-p", "no:cacheprovider", str(captured)]
    said = subprocess.run(alone, cwd=repo, capture_output=True, text=True, check=False).stdout
    assert "FAILED" in said and "test_scaled" in said, said


FIRST_EXAMPLE = """\
import cuda.tile as ct
import cupy as cp


@ct.kernel
def vector_add(a, b, c, tile_size: ct.Constant[int]):
    pid = ct.bid(0)
    a_tile = ct.load(a, index=(pid,), shape=(tile_size,))
    b_tile = ct.load(b, index=(pid,), shape=(tile_size,))
    ct.store(c, index=(pid,), tile=a_tile + b_tile)


def add(a, b):
    c = cp.zeros_like(a)
    grid = (ct.cdiv(a.shape[0], 16), 1, 1)
    ct.launch(cp.cuda.get_current_stream(), grid, vector_add, (a, b, c, 16))
    return c


if __name__ == "__main__":
    a, b = (cp.random.uniform(-1, 1, 4096).astype(cp.float32) for _ in range(2))
    assert cp.allclose(add(a, b), a + b)
"""


@pytest.mark.gpu
@pytest.mark.skipif(probe().gpu is None, reason="needs an NVIDIA GPU, and none is visible")
def test_a_script_of_cutile_and_cupy_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the first example of cuTile's documentation is: it imports no torch."""
    pytest.importorskip("cupy", reason="CuPy is not installed")
    isolate(monkeypatch, tmp_path)
    repo = make_repo(tmp_path, {"vector_add.py": FIRST_EXAMPLE})
    given = ("--kernel", "vector_add.py")
    command = (sys.executable, "vector_add.py")
    done = tile_agent(repo, "capture", *given, "--json", "--", *command, env=dict(os.environ))
    assert done.code == 0, done.err
    text = (repo / "test_vector_add_captured.py").read_text()
    assert text.count("cupy.asarray(") == 2
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "captured")
    judged = tile_agent(repo, "verify", *given, env=dict(os.environ))
    assert judged.code == 0, judged.err
