"""Kernels whose constants, integers and shapes a translation word by word takes for others."""

TRITON = '''\
import torch
import triton
import triton.language as tl

OFFSET = int(-3)


@triton.jit
def reshaped_kernel(x_ptr, s_ptr, out_ptr, M: tl.constexpr):
    """A shape that is spread over the arguments, of which the first looks like all of it."""
    i = tl.arange(0, M)
    at = i[:, None] * M + i[None, :]
    x, s = tl.load(x_ptr + at), tl.load(s_ptr + i)
    cube = tl.view(tl.reshape(x, (M * M,)), 2, M, M // 2)
    flat = tl.reshape(cube, (M, M)) + tl.broadcast_to(s.reshape(1, M), M, M)
    tl.store(out_ptr + at, x * s.reshape(M, 1) + flat)


def reshaped(x, s):
    out = torch.empty_like(x)
    reshaped_kernel[(1,)](x, s, out, M=x.shape[0])
    return out


@triton.jit
def constants_kernel(x_ptr, out_ptr, n, F: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr):
    """Variables of constants are tensors of 32 bits, whatever the launch makes of them."""
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    scale = F * 1.5
    tl.store(out_ptr + i, x * scale)
    factor = C
    tl.store(out_ptr + BLOCK + i, x * factor)
    chosen = F if C > 2 else 1.0
    tl.store(out_ptr + 2 * BLOCK + i, tl.maximum(x * 2, chosen))
    tenth = C * 0.1
    product = 1.0
    for _ in range(n):
        product = product * F
    tl.store(out_ptr + 3 * BLOCK + i, x * tenth + x * product)
    doubled = 1
    while doubled < n:
        doubled = doubled * 2
    tl.store(out_ptr + 4 * BLOCK + i, x * doubled)
    picked = 70000.0 if n > 3 else 2.0
    tl.store(out_ptr + 5 * BLOCK + i, x * picked)


def constants(x, n, f, c):
    out = torch.empty(6 * 8)
    constants_kernel[(1,)](x, out, n, F=f, C=c, BLOCK=8)
    return out


@triton.jit
def large_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    """Triton takes what is above 2**31 for uint32, and what is above 2**32 for int64."""
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    golden = 0x9E3779B9
    y = x.to(tl.uint32) * golden
    y ^= y >> 16
    tl.store(out_ptr + i, y)
    billions = 5000000000
    tl.store(out_ptr + BLOCK + i, x + billions)
    tl.store(out_ptr + 2 * BLOCK + i, y // 3)
    wrapped = 65536 * 65536
    tl.store(out_ptr + 3 * BLOCK + i, x + wrapped)


def large(x):
    out = torch.empty(4 * 8, dtype=torch.int64)
    large_kernel[(1,)](x, out, BLOCK=8)
    return out


@triton.jit
def signs_kernel(out_ptr, shift, N: tl.constexpr, BLOCK: tl.constexpr):
    """`int` of the host may be negative, and products of integers wrap."""
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, (i + shift) // 4 * 100 + (i + shift) % N)
    tl.store(out_ptr + BLOCK + i, (i + OFFSET) // 4)
    tl.store(out_ptr + 2 * BLOCK + i, (i * 1103515245 + 12345) % 1000)
    large = tl.where(i > 3, i, 0) * 65536
    tl.store(out_ptr + 3 * BLOCK + i, (large * large + large * 65536) % 7)
    total = tl.sum(tl.full((BLOCK,), 300000000, tl.int32), 0)
    tl.store(out_ptr + 4 * BLOCK + i, i + total // 1000)
    hashed = i
    for _ in range(8):
        hashed = hashed * 31 + 7
    tl.store(out_ptr + 5 * BLOCK + i, hashed % 1000)
    a = -7
    b = 2
    tl.store(out_ptr + 6 * BLOCK + i, i * 0 + a // b)


def signs(shift):
    out = torch.zeros(7 * 8, dtype=torch.int32)
    signs_kernel[(1,)](out, int(shift), N=8, BLOCK=8)
    return out


@triton.jit
def booleans_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """A boolean is an unsigned integer of one bit: so is the sum of several."""
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=(i < n) * (i > 0), other=-1e999)
    count = tl.sum(x > 0, axis=0)
    tl.store(out_ptr, count - 5)
    tl.store(out_ptr + 1, (count - 5) // 2)
    tl.store(out_ptr + 2, tl.where(count - 5 > 0, 1, 0))


def booleans(x):
    out = torch.zeros(3, dtype=torch.int64)
    booleans_kernel[(1,)](x, out, x.numel(), BLOCK=8)
    return out


@triton.jit
def running_kernel(x_ptr, out_ptr, n, FLAG: tl.constexpr, BLOCK: tl.constexpr):
    """A maximum that begins as a constant is fp32, whatever it is compared with."""
    i = tl.arange(0, BLOCK)
    largest = -float("inf")
    total = 0.0
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + start + i, mask=start + i < n, other=-float("inf"))
        above = tl.maximum(largest, tl.max(x, 0))
        total = total * tl.exp(largest - above) + tl.sum(tl.exp(x.to(tl.float32) - above), 0)
        largest = above
    if tl.constexpr(FLAG):
        total = total * 2
    tl.store(out_ptr, largest)
    tl.store(out_ptr + 1, total)


def running(x):
    out = torch.empty(2)
    running_kernel[(1,)](x, out, x.numel(), FLAG=x.numel() > 8, BLOCK=4)
    return out
'''

TESTS = """\
import pytest
import torch
from number_traps import booleans, constants, large, reshaped, running, signs


def test_reshaped():
    reshaped(torch.randn(8, 8), torch.randn(8))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int8])
@pytest.mark.parametrize(("f", "c"), [(1.5, 3), (70000.0, 2), (2, 7), (0.3, 4.5)])
def test_constants(dtype, f, c):
    x = torch.tensor([100, -55, 3, 90, -7, 1, 60, 0], dtype=dtype)
    for n in (0, 3, 5):
        constants(x * 400 if dtype == torch.float16 else x, n, f, c)


def test_large():
    large(torch.arange(8, dtype=torch.int32) + 1000)


@pytest.mark.parametrize("shift", [-3, 0, 5])
def test_signs(shift):
    signs(shift)


def test_booleans():
    booleans(torch.tensor([1.0, 1, -1, -1, -1, 2]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_running(dtype):
    running(torch.randn(13, dtype=dtype))
    running(torch.randn(6, dtype=dtype))
"""
CALLS = 1 + 3 * 4 * 3 + 1 + 3 + 1 + 4
