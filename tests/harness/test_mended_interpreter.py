"""What Triton's interpreter lacks and public kernels use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.repo import write
from tests.support.warm_python import run_python

pytest.importorskip("triton", reason="triton is not installed")

KERNEL = """
import torch
import triton
import triton.language as tl
from triton.language.extra.libdevice import tanh
from triton.language.extra.cuda import libdevice


@triton.jit
def shift_kernel(x_ptr, y_ptr, n, epsilon, exact: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    if not exact:
        x = x + epsilon.to(tl.float32)
    tl.static_assert(epsilon.dtype == tl.float32)
    tl.store(y_ptr + offsets, x * epsilon, mask=offsets < n)


@triton.autotune([triton.Config({"BLOCK": size}) for size in (32, 64)], key=["n"])
@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def curve(x):
    return tl.extra.libdevice.rsqrt(tanh(x) + 2.0) * libdevice.pow(libdevice.abs(x), 0.5 + 0.0 * x)


@triton.jit
def curve_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    y = curve(x) + libdevice.erf(x) + libdevice.fma(x, x, x)
    y = tl.where(libdevice.isnan(x), 0.0, y) + libdevice.tanh(tl.load(x_ptr))
    tl.store(y_ptr + offsets, y, mask=offsets < n)


def curved(x):
    y = torch.empty_like(x)
    curve_kernel[(triton.cdiv(x.numel(), 32),)](x, y, x.numel(), BLOCK=32)
    return y


def shift(x, epsilon):
    y = torch.empty_like(x)
    shift_kernel[(triton.cdiv(x.numel(), 32),)](x, y, x.numel(), epsilon, exact=False, BLOCK=32)
    return y


def copy(x):
    y = torch.empty_like(x)
    copy_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y
"""
USE = """
import torch
import triton
from triton.runtime import interpreter

from tile_agent_pytest.mended_interpreter import mend, mend_all

mend_all()
mended = interpreter._implicit_cvt
mend()
assert interpreter._implicit_cvt is mended

from kernel import copy, curved, shift

x = torch.randn(100)
torch.testing.assert_close(shift(x, 1e-3), (x + 1e-3) * 1e-3)
assert shift(x.double(), 0.1).dtype == torch.float64
assert torch.equal(copy(x), x)
for x in (torch.randn(100), torch.randn(100, dtype=torch.float64)):
    expected = torch.rsqrt(torch.tanh(x) + 2) * x.abs() ** 0.5 + torch.erf(x) + x * x + x
    torch.testing.assert_close(curved(x), expected + torch.tanh(x[0]))
assert curved(torch.tensor([1.0, float("nan")]))[1] == torch.tanh(torch.tensor(1.0))
"""


def test_floats_have_a_type_libdevice_computes_and_tuners_need_no_gpu(tmp_path: Path) -> None:
    write(tmp_path, {"kernel.py": KERNEL})
    done = run_python(
        USE,
        environment={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
