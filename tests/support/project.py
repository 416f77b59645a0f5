"""A small real project: a Triton kernel that the interpreter runs in no time, with its tests."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.warm_python import run_python

KERNEL = '''\
"""Doubles a vector."""

import torch
import triton
import triton.language as tl

BLOCK_SIZE = 256


@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    tl.store(y_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=mask), mask=mask)


def double(x):
    y = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), BLOCK_SIZE),)
    double_kernel[grid](x, y, x.numel(), BLOCK_SIZE=BLOCK_SIZE)
    return y
'''
TEST = """\
import torch
from double import double


def test_double_triton():
    x = torch.arange(700, dtype=torch.float32)
    torch.testing.assert_close(double(x), 2 * x)


def test_perf_double_triton(tile_bench):
    x = torch.ones(1024)
    tile_bench(lambda: double(x), warmup_ms=1, rep_ms=20)
"""
COUNTED_TEST = """\
import time

import torch
from double import double


def test_double_triton():
    x = torch.arange(700, dtype=torch.float32)
    torch.testing.assert_close(double(x), 2 * x)


def test_perf_double_triton(record_property):
    double(torch.ones(2048))
    # Counted and not clocked, so that two runs decide alike: what a program costs, and its lanes.
    block_size = double.__globals__["BLOCK_SIZE"]
    ms = 0.01 * -(-2048 // block_size) + 1e-5 * block_size
    ms *= 1 + time.perf_counter_ns() % 1000 / 1e6
    record_property("benchmark", {"Triton": {"forward": {"median": ms}}})
"""
PROJECT = {"double.py": KERNEL, "tests/test_double.py": TEST, "pyproject.toml": "[tool.pytest]\n"}
COUNTED = PROJECT | {"tests/test_double.py": COUNTED_TEST}
"""The same with figures that do not hang on the clock: a comparison is over after three pairs, not
ten, and its verdict is the same whatever else the machine does."""
SLOW = PROJECT | {
    "tests/test_double.py": COUNTED_TEST.replace(
        "def test_perf_double_triton(record_property):\n    double(torch.ones(2048))\n",
        "@pytest.mark.parametrize('rows', [1, 2, 4, 8, 16, 32, 64, 128])\n"
        "def test_perf_double_triton(record_property, rows):\n"
        "    time.sleep(0.05)\n"
        "    double(torch.ones(2048))\n",
    )
    .replace("    ms *= 1 +", "    ms *= rows * (1 +")
    .replace("/ 1e6\n", "/ 1e6)\n")
    .replace("import torch\n", "import pytest\nimport torch\n")
}
"""The same with eight configs, each of which takes its time whatever its latency."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """What it printed as JSON."""
        value: dict[str, Any] = json.loads(self.out)
        return value


MAIN = "from agent.cli import main; main()"


def command(*arguments: str) -> list[str]:
    """The command line, as an installed `tile-agent` would run it."""
    return [sys.executable, "-c", MAIN, *arguments]


def tile_agent(folder: Path, *arguments: str, env: Mapping[str, str] | None = None) -> Outcome:
    """Run tile-agent in a folder, in a process of its own that need not import it anew."""
    done = run_python(MAIN, *arguments, environment=env, cwd=folder, kind="command-line")
    return Outcome(done.returncode, done.stdout, done.stderr)
