"""Kernels of which a translation word by word computes something else; read by test_traps.py."""

TRITON = '''\
import torch
import triton
import triton.language as tl

SCALE = 0.5


@triton.jit
def divide_kernel(x_ptr, y_ptr, quotient_ptr, rest_ptr, n, BLOCK: tl.constexpr):
    """Toward zero in Triton, down in cuTile."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=1)
    y = tl.load(y_ptr + i, mask=i < n, other=1)
    tl.store(quotient_ptr + i, x // y, mask=i < n)
    tl.store(rest_ptr + i, x % y, mask=i < n)


def divide(x, y):
    down, rest = torch.empty_like(x), torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 8),)
    divide_kernel[grid](x, y, down, rest, x.numel(), BLOCK=8)
    return down, rest


@triton.jit
def halves_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Halves are divided in fp32: a quotient may be larger than fp16 holds."""
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=1.0)
    y = tl.load(y_ptr + i, mask=i < n, other=1.0)
    largest = tl.max(x, axis=0) * 100.0
    tl.store(out_ptr + i, x / y + largest, mask=i < n)


def halves(x, y):
    out = torch.empty(x.shape, dtype=torch.float32)
    halves_kernel[lambda meta: (1,)](x, y, out, x.numel(), BLOCK=triton.next_power_of_2(x.numel()))
    return out


@triton.jit
def bytes_kernel(x_ptr, total_ptr, flag_ptr, n, BLOCK: tl.constexpr):
    """Sums of bytes are taken in 32 bits; a store casts, also to booleans."""
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0)
    tl.store(total_ptr, tl.sum(x, axis=0))
    tl.store(flag_ptr + i, x, mask=i < n)


def of_bytes(x):
    total, flag = torch.zeros(1, dtype=torch.int64), torch.zeros(x.shape, dtype=torch.bool)
    bytes_kernel[(1,)](x, total, flag, x.numel(), BLOCK=128)
    return total, flag


@triton.jit
def rows_kernel(x_ptr, out_ptr, m, n, row_stride, column_stride, BLOCK: tl.constexpr):
    """Pointers are moved, in a loop and out of it, and the launch may be of nothing."""
    row = tl.program_id(0)
    if row >= m:
        return
    x_ptr += row * row_stride
    total = 0.0
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + tl.arange(0, BLOCK) * column_stride, mask=i < n, other=0.0)
        total += tl.sum(x.to(tl.float32), axis=0)
        x_ptr += BLOCK * column_stride
    tl.store(out_ptr + row, total * SCALE)


def rows(x):
    m, n = x.shape
    out = torch.empty((m,), dtype=torch.float32)
    rows_kernel[(m,)](x, out, m, n, x.stride(0), x.stride(1), BLOCK=4)
    return out


@triton.jit
def weighted(x_ptr, w_ptr, i, mask, HAS_WEIGHT: tl.constexpr):
    x = tl.load(x_ptr + i, mask=mask, other=0.0).to(tl.float32)
    if HAS_WEIGHT:
        w = tl.load(w_ptr + i, mask=mask, other=0.0).to(tl.float32)
    else:
        w = 1.0
    return x * w, tl.sigmoid(x)


@triton.jit
def helper_kernel(x_ptr, w_ptr, out_ptr, n, HAS_WEIGHT: tl.constexpr, BLOCK: tl.constexpr):
    """A helper that is given pointers, moved and not."""
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    y, gate = weighted(x_ptr + row * n, w_ptr, i, i < n, HAS_WEIGHT)
    tl.store(out_ptr + row * n + i, y * gate, mask=i < n)


def helped(x, w):
    m, n = x.shape
    out = torch.empty_like(x)
    has_weight = w is not None
    helper_kernel[(m,)](x, w if has_weight else x, out, n, HAS_WEIGHT=has_weight, BLOCK=16)
    return out


@triton.jit
def count_kernel(x_ptr, counts_ptr, largest_ptr, n, BLOCK: tl.constexpr):
    """Atomics with a mask, several of a tile at one address."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0)
    tl.atomic_add(counts_ptr + x, 1, mask=i < n, sem="relaxed")
    tl.atomic_max(largest_ptr, tl.max(x, axis=0))


def count(x):
    counts, largest = torch.zeros(8, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    count_kernel[(triton.cdiv(x.numel(), 4),)](x, counts, largest, x.numel(), BLOCK=4)
    return counts, largest


@triton.jit
def strips_kernel(q_ptr, k_ptr, stride, n, BLOCK: tl.constexpr):
    """Two strips of one tensor, both written."""
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    at = row * stride + i
    q, k = tl.load(q_ptr + at, mask=i < n), tl.load(k_ptr + at, mask=i < n)
    tl.store(q_ptr + at, q * 2 - k, mask=i < n)
    tl.store(k_ptr + at, k * 2, mask=i < n)


def strips(q, k):
    strips_kernel[(q.shape[0],)](q, k, q.stride(0), q.shape[1], BLOCK=8)
    return q
'''

TESTS = """\
import pytest
import torch
from traps import count, divide, halves, helped, of_bytes, rows, strips


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int8])
def test_divide(dtype):
    x = torch.tensor([7, -7, 7, -7, 0, 6, -6, -1, 5], dtype=dtype)
    y = torch.tensor([2, 2, -2, -2, 3, 3, 3, 2, -7], dtype=dtype)
    divide(x, y)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_halves(dtype):
    x = torch.tensor([1000.0, 3.0, -5.0, 60000.0, 1.0], dtype=dtype)
    halves(x, torch.tensor([3.0, 7.0, 0.001, 0.01, 3.0], dtype=dtype))


def test_bytes():
    of_bytes(torch.tensor([100] * 70 + [0, -3], dtype=torch.int8))


def test_rows():
    x = torch.randn(6, 11)
    for strided in (x, x.t(), x[:, 2:9], x[1:, ::2], x[:1].expand(3, 11), x[:0], x.half()):
        rows(strided)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_helped(dtype):
    helped(torch.randn(3, 13, dtype=dtype), torch.randn(13, dtype=dtype))
    helped(torch.randn(3, 13, dtype=dtype), None)


def test_count():
    count(torch.tensor([1, 1, 1, 5, 7, 7, 0, 2, 2], dtype=torch.int64))


def test_strips():
    both = torch.randn(4, 10)
    strips(both[:, :5], both[:, 5:])
"""
CALLS = 3 + 2 + 1 + 7 + 4 + 1 + 1
