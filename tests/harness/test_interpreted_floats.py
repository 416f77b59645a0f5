"""bfloat16 and the 8-bit floats in Triton's interpreter are what a GPU makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.warm_python import printed_in_interpreter

pytest.importorskip("triton", reason="triton is not installed")

KERNELS = """
import triton
import triton.language as tl


@triton.jit
def each(x_ptr, y_ptr, o_ptr, m_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    row = 0
    tl.store(o_ptr + row * N + i, x + y)
    tl.store(o_ptr + 1 * N + i, x - y)
    tl.store(o_ptr + 2 * N + i, x * y)
    tl.store(o_ptr + 3 * N + i, x / y)
    tl.store(o_ptr + 4 * N + i, -x)
    tl.store(o_ptr + 5 * N + i, tl.abs(x))
    tl.store(o_ptr + 6 * N + i, tl.maximum(x, y))
    tl.store(o_ptr + 7 * N + i, tl.minimum(x, 0.5))
    tl.store(o_ptr + 8 * N + i, tl.where(x > y, x, 0.0))
    tl.store(o_ptr + 9 * N + i, tl.clamp(x, y, 1.0, propagate_nan=tl.PropagateNan.ALL))
    tl.store(o_ptr + 10 * N + i, tl.math.fma(x, y, x))
    tl.store(o_ptr + 11 * N + i, i)
    tl.store(o_ptr + 12 * N + i, x.to(tl.float16))
    tl.store(o_ptr + 13 * N + i, x.to(tl.float64) * 1.001)
    tl.store(o_ptr + 14 * N + i, (x * 100).to(tl.int32))
    tl.store(o_ptr + 15 * N + i, x > y)
    tl.store(o_ptr + 16 * N + i, (x.to(tl.float32) > y).to(tl.bfloat16))
    tl.store(o_ptr + 17 * N + i, 2 * x)
    tl.store(m_ptr + i, (x < y) & (x != 0.0))


@triton.jit
def product(x_ptr, y_ptr, o_ptr, t_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    place = i[:, None] * N + i[None, :]
    x, y = tl.load(x_ptr + place), tl.load(y_ptr + place)
    tl.store(o_ptr + place, tl.dot(x, y))
    tl.store(t_ptr + i, tl.sum(x, axis=1))
    tl.store(t_ptr + N + i, tl.sum(tl.sum(x, axis=0, keep_dims=True)) + i * 0)
    tl.store(t_ptr + 2 * N + i, tl.argmax(x, axis=1))
    value, index = tl.min(x, axis=0, return_indices=True)
    tl.store(t_ptr + 3 * N + i, value)
    tl.store(t_ptr + 4 * N + i, index)
    tl.store(t_ptr + 5 * N + i, tl.sum(tl.where(i == 3, tl.cumsum(x, axis=1), 0.0), axis=1))
    tl.store(t_ptr + 6 * N + i, tl.max(x, axis=0))


@triton.jit
def add(x_ptr, o_ptr, old_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    old = tl.atomic_add(o_ptr + i % 4, tl.load(x_ptr + i), mask=i != 5)
    tl.store(old_ptr + i, old)


@triton.jit
def rounded(x_ptr, o_ptr, z_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(o_ptr + i, x)
    tl.store(z_ptr + i, x.to(tl.bfloat16, fp_downcast_rounding="rtz"))


@triton.jit
def eight(x_ptr, q_ptr, o_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    q = tl.load(x_ptr + i).to(q_ptr.dtype.element_ty)
    tl.store(q_ptr + i, q)
    tl.store(o_ptr + i, q.to(o_ptr.dtype.element_ty))
"""
PREPARED = """
import torch
from tile_agent_pytest.mended_interpreter import mend, mend_all

mend_all()
mend()
import kernels

torch.manual_seed(0)
N = 64


def same(one, other):
    return bool(((one == other) | (one.isnan() & other.isnan())).all())


"""
USE_EACH = """
x, y = (torch.randn(N).bfloat16() for _ in range(2))
x[3] = y[3]
o, m = torch.zeros(18, N, dtype=torch.bfloat16), torch.zeros(N, dtype=torch.bool)
kernels.each[(1,)](x, y, o, m, N=N)
f, g, i = x.float(), y.float(), torch.arange(N)
expected = [
    x + y, x - y, x * y, f / g, -x, x.abs(), torch.maximum(x, y), x.clamp_max(0.5),
    torch.where(x > y, x, 0), torch.minimum(torch.maximum(x, y), torch.tensor(1.0).bfloat16()),
    x.double() * y.double() + x.double(), i, x, x.double() * 1.001,
    (x * 100).int(), x > y, x > y, 2 * x,
]
print([n for n, e in enumerate(expected) if not torch.equal(o[n], e.bfloat16())])
print(torch.equal(m, (x < y) & (x != 0)))
"""
USE_PRODUCT = """
x, y = (torch.randn(N, N).bfloat16() for _ in range(2))
o, t = torch.zeros(N, N), torch.zeros(7, N)
kernels.product[(1,)](x, y, o, t, N=N)
print(torch.allclose(o, x.float() @ y.float(), atol=1e-4))


def folded(values):
    while values.shape[-1] > 1:
        values = sum(values.chunk(2, -1))
    return values.squeeze(-1)


scanned = ((x[:, 0] + x[:, 1]) + x[:, 2]) + x[:, 3]
expected = [
    folded(x), folded(folded(x.T)).expand(N), x.argmax(1), *x.min(0), scanned, x.amax(0)
]
print([n for n, e in enumerate(expected) if not torch.equal(t[n], e.float())])
x = torch.randn(N).bfloat16()
o, old = torch.ones(4, dtype=torch.bfloat16), torch.zeros(N, dtype=torch.bfloat16)
expected, before = o.clone(), old.clone()
for n in range(N):
    if n != 5:
        before[n] = expected[n % 4]
        expected[n % 4] += x[n]
kernels.add[(1,)](x, o, old, N=N)
print(torch.equal(o, expected), torch.equal(old, before))
"""
USE_ROUNDED = """
bits = torch.randint(-(2**31), 2**31 - 1, (8192,), dtype=torch.int32).view(torch.float32)
middle = (torch.arange(8192, dtype=torch.int32) * 0x8000 + 0x3F800000).view(torch.float32)
for x in (bits, middle):
    o, z = (torch.zeros(8192, dtype=torch.bfloat16) for _ in range(2))
    kernels.rounded[(1,)](x, o, z, N=8192)
    cut = (x.view(torch.int32) & -0x10000).view(torch.float32)
    wrong = (z.float() != cut) & ~x.isnan() & (x.abs() >= 2.0**-126)
    print(same(o, x.bfloat16()), int(wrong.sum()))
"""
USE_EIGHT = """
import itertools

limits = {torch.float8_e4m3fn: 448, torch.float8_e5m2: 57344}
values = torch.cat([
    torch.randn(992), torch.randn(16) * 1e-3, torch.randn(13) * 1e5,
    torch.tensor([float("nan"), float("inf"), -0.0]),
])
given, out = (torch.float32, torch.float16, torch.bfloat16), (torch.float32, torch.bfloat16)
for kind, source, target in itertools.product(limits, given, out):
    limit = limits[kind]
    x = values.to(source)
    q, o = torch.zeros(1024, dtype=kind), torch.zeros(1024, dtype=target)
    kernels.eight[(1,)](x, q, o, N=1024)
    expected = x.float().clamp(-limit, limit).to(kind)
    print(same(q.float(), expected.float()) and same(o, expected.float().to(target)), end=" ")
"""


def result(folder: Path, program: str) -> str:
    return printed_in_interpreter(folder, KERNELS, PREPARED + program)


def test_an_operation_of_bfloat16_is_one_of_float32_rounded(tmp_path: Path) -> None:
    assert result(tmp_path, USE_EACH) == "[]\nTrue"


def test_products_and_atomics_of_bfloat16(tmp_path: Path) -> None:
    assert result(tmp_path, USE_PRODUCT) == "True\n[]\nTrue True"


def test_a_conversion_rounds_to_nearest_even(tmp_path: Path) -> None:
    assert result(tmp_path, USE_ROUNDED) == "True 0\nTrue 0"


def test_a_conversion_to_8_bits_rounds_and_saturates(tmp_path: Path) -> None:
    assert result(tmp_path, USE_EIGHT).split() == ["True"] * 12
