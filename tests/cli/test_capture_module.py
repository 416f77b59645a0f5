"""`tile-agent capture` of a kernel's own file that the command runs by `python -m`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.project import Outcome, tile_agent
from tests.support.repo import isolate, make_repo, write

KERNEL = "shop/ops/double.py"
DOUBLE = '''\
"""Doubles."""

import sys

import torch
import triton
import triton.language as tl

from . import FACTOR


@triton.jit
def double_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, x * factor, mask=offsets < n)


def double(x):
    y = torch.empty_like(x)
    double_kernel[(1,)](x, y, x.numel(), FACTOR, BLOCK=64)
    return y


if __name__ == "__main__":
    assert (__doc__, __package__, __spec__.name) == ("Doubles.", "shop.ops", "shop.ops.double")
    assert __file__ == sys.argv[0] and sys.argv[1:] == ["--all"], sys.argv
    double(torch.randn(40))
'''


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    packages = {"shop/__init__.py": "", "shop/ops/__init__.py": "FACTOR = 2.0\n"}
    return make_repo(tmp_path, {**packages, KERNEL: DOUBLE})


def module(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "shop.ops.double", *arguments]


def capture(repo: Path, *arguments: str) -> Outcome:
    given = ("--kernel", KERNEL, "--json", "--", *module(*arguments))
    return tile_agent(repo, "capture", *given, env=dict(os.environ))


def test_a_module_that_is_run_becomes_tests_that_import_it_from_its_package(repo: Path) -> None:
    done = capture(repo, "--all")
    assert done.code == 0, done.err
    assert [entry["name"] for entry in done.json["entries"]] == ["double"]
    assert done.json["notes"] == []  # they were tried, and pass
    assert "from shop.ops.double import double" in (repo / done.json["files"][0]).read_text()


def test_it_ends_as_it_would_alone(repo: Path) -> None:
    done = capture(repo, "--other")
    assert done.code == 3
    assert "exit code 1" in done.json["error"]
    alone = subprocess.run(
        module("--other"), cwd=repo, env=dict(os.environ), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    said = [line for line in alone.stderr.splitlines() if "runpy" not in line]
    assert "\n".join(said) in done.err


def test_a_guard_for_a_gpu_in_another_module_is_met(repo: Path) -> None:
    guard = "def checked(x):\n    assert x.is_cuda\n    return x\n"
    text = DOUBLE.replace(
        "from . import FACTOR", "from shop.checks import checked\n\n\nFACTOR = 2.0"
    )
    text = text.replace("torch.randn(40)", 'torch.randn(40, device="cuda")')
    text = text.replace("y = torch.empty_like(x)", "y = torch.empty_like(checked(x))")
    write(repo, {"shop/checks.py": guard, KERNEL: text})
    done = capture(repo, "--all")
    assert done.code == 0, done.err
    assert done.json["notes"] == []
    assert 'DEVICE = "cuda"\n' in (repo / done.json["files"][0]).read_text()
