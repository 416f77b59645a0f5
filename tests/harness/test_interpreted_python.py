"""Python's own functions in Triton's interpreter are what the compiler makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.warm_python import printed_in_interpreter

pytest.importorskip("triton", reason="triton is not installed")

KERNELS = """
import triton
import triton.language as tl


@triton.jit
def between(x_ptr, y_ptr, o_ptr, n, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    tl.store(o_ptr + i, min(x, 1.0))
    tl.store(o_ptr + N + i, max(x, y, 0.0))
    tl.store(o_ptr + 2 * N + i, min(tl.program_id(0) + 5, n, 4) + i * 0)
    tl.store(o_ptr + 3 * N + i, min(N, 3) + max((N, 3)) + i * 0)


@triton.jit
def own(o_ptr, N: tl.constexpr):
    tl.store(o_ptr, min(2, 3))


def min(a, b):
    return 7


@triton.jit
def loops(o_ptr, start, stop, STEPS: tl.constexpr, BY: tl.constexpr):
    for j in range(start, stop):
        tl.store(o_ptr + j - start, (j - 2) // 2)
        tl.store(o_ptr + 20 + j - start, j % 3 + 10 * ((j - 1) // BY % 2))
    for k in tl.range(STEPS):
        for m in range(2):
            tl.store(o_ptr + 40 + 2 * k + m, (k + m - 3) // BY)
    for c in tl.static_range(STEPS):
        tl.store(o_ptr + 60 + c, (c - 3) // BY)
"""
PREPARED = """
import torch
from tile_agent_pytest.mended_interpreter import mend, mend_all

mend_all()
mend()
import kernels

"""
USE_EXTREMES = """
kernels.own[(1,)](o := torch.zeros(1), N=1)
assert o.item() == 7, o
del kernels.min
x, y, o = torch.randn(8), torch.randn(8), torch.zeros(4, 8)
kernels.between[(1,)](x, y, o, 9, N=8)
expected = x.clamp_max(1), torch.maximum(x, y).clamp_min(0), torch.full((8,), 4.0)
print([torch.equal(*pair) for pair in zip(o, expected)], o[3, 0].item())
"""
USE_LOOPS = """
o = torch.zeros(80, dtype=torch.int32)
kernels.loops[(1,)](o, -5, 5, STEPS=5, BY=2)
j = torch.arange(-5, 5, dtype=torch.int32)
half = torch.div(j - 1, 2, rounding_mode="trunc")
print(torch.equal(o[:10], torch.div(j - 2, 2, rounding_mode="trunc")))
print(torch.equal(o[20:30], torch.fmod(j, 3) + 10 * torch.fmod(half, 2)))
print(o[40:50].tolist(), o[60:65].tolist())
"""


def result(folder: Path, program: str) -> str:
    return printed_in_interpreter(folder, KERNELS, PREPARED + program)


def test_min_and_max_of_tiles_are_taken_element_by_element(tmp_path: Path) -> None:
    assert result(tmp_path, USE_EXTREMES) == "[True, True, True] 11.0"


def test_the_counter_of_a_loop_is_divided_toward_zero(tmp_path: Path) -> None:
    toward_zero = [(k + m - 3) / 2 for k in range(5) for m in range(2)]
    down = [(c - 3) // 2 for c in range(5)]
    assert result(tmp_path, USE_LOOPS) == f"True\nTrue\n{[*map(int, toward_zero)]} {down}"
