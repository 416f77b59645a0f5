"""`tile-agent capture` of a gated scan: the sums of decays in it fall in the tests too."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.project import tile_agent
from tests.support.repo import isolate, make_repo, write
from tests.support.warm_python import warm_interpreter

SUM = "tl.sum(weights * x[None, :], axis=1) - tl.sum(weights * x[:, None], axis=0)"
SCAN = f'''\
"""A scan with decays, chunk by chunk, and how much each decay counts in it."""

import torch
import triton
import triton.language as tl


@triton.jit
def scan_kernel(x_ptr, g_ptr, y_ptr, length, CHUNK: tl.constexpr):
    rows = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    mask = rows < length
    x = tl.load(x_ptr + tl.program_id(1) * length + rows, mask=mask, other=0.0)
    g = tl.load(g_ptr + tl.program_id(1) * length + rows, mask=mask, other=0.0)
    earlier = (rows[:, None] >= rows[None, :]) & mask[:, None]
    weights = tl.where(earlier, tl.exp(g[:, None] - g[None, :]), 0.0)
    y = {SUM}
    tl.store(y_ptr + tl.program_id(1) * length + rows, y, mask=mask)


def scan(x, g):
    y = torch.empty_like(x)
    heads, length = x.shape
    scan_kernel[(triton.cdiv(length, 32), heads)](x, g, y, length, CHUNK=32)
    return y
'''
SCRIPT = """\
import torch
from kernels.scan import scan

torch.manual_seed(0)
g = torch.nn.functional.logsigmoid(torch.randn(3, 100))
scan(torch.randn(3, 100), torch.cat([part.cumsum(1) for part in g.split(32, 1)], 1))
"""
FILES = {
    "kernels/__init__.py": "",
    "kernels/scan.py": SCAN,
    "tests/__init__.py": "",
    "use.py": SCRIPT,
    "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["."]\n',
}
KERNEL, CAPTURED = "kernels/scan.py", "tests/test_scan_captured.py"


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return make_repo(tmp_path, FILES)


def python(repo: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [warm_interpreter(), *arguments]
    return subprocess.run(command, cwd=repo, capture_output=True, text=True, check=False)


def test_decays_that_fall_in_chunks_do_so_again(repo: Path) -> None:
    given = ("capture", "--kernel", KERNEL, "--json", "--", warm_interpreter(), "use.py")
    done = tile_agent(repo, *given, env=dict(os.environ))
    assert done.code == 0, done.err
    text = (repo / CAPTURED).read_text()
    drawn = r"cumulative\(\(3, 100\), torch.float32, dim=1, mean=-0.\d+, std=0.\d+, chunk=32\),"
    assert len(re.findall(drawn, text)) == 1
    falls = (
        "from tests.test_scan_captured import SCAN_CASES, inputs\n"
        "(x, g), _ = inputs(SCAN_CASES[0].values[0])\n"
        "assert all((part.diff(dim=1) < 0).all() for part in g.split(32, 1))\n"
        "assert (g < 0).all() and (x.diff(dim=1) > 0).any()"
    )
    assert python(repo, "-c", falls).stderr == ""

    together = "tl.sum(weights * x[None, :] - tl.trans(weights * x[:, None]), axis=1)"
    write(repo, {KERNEL: SCAN.replace(SUM, together)})
    done = python(repo, "-m", "pytest", "-q", "-p", "no:cacheprovider", CAPTURED, "-k", "not perf")
    assert done.returncode == 0, done.stdout
    for command in (["format", "--check"], ["check", "--select=E,F,W,B,UP"]):
        ruff = ("-m", "ruff", *command, "--isolated", "--line-length=100")
        done = python(repo, *ruff, CAPTURED)
        assert done.returncode == 0, done.stdout
