"""Launches whose host code a translation word by word evaluates elsewhere, or twice."""

TRITON = '''\
import torch
import triton
import triton.language as tl

BASE = 4
BLOCK = 8
SIZES = {"a   b": 8}


@triton.jit
def shifted(x, by=BASE):
    return x + by


@triton.jit
def shifted_kernel(x_ptr, out_ptr, BASE: tl.constexpr, SIZE: tl.constexpr):
    """A parameter has the name of the global that is a helper's default."""
    i = tl.arange(0, SIZE)
    tl.store(out_ptr + i, shifted(tl.load(x_ptr + i)) * BASE)


def shifted_by_base(x):
    out = torch.empty_like(x)
    shifted_kernel[(1,)](x, out, BASE=10, SIZE=8)
    return out


@triton.jit
def default_kernel(x_ptr, out_ptr, n, SIZE: tl.constexpr = BLOCK):
    i = tl.arange(0, SIZE)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n, other=-1.0) + SIZE)


def default(x, BLOCK=16):
    """The default is the module's BLOCK, not this one."""
    out = torch.zeros(BLOCK)
    default_kernel[(1,)](x, out, x.numel())
    return out


@triton.autotune(configs=[triton.Config({"SIZE": BLOCK}), triton.Config({"SIZE": 32})], key=["n"])
@triton.jit
def tuned_kernel(x_ptr, out_ptr, n, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n, other=-1.0) + 1)


def tuned(x, BLOCK=16):
    out = torch.zeros(32)
    tuned_kernel[(1,)](x, out, x.numel())
    return out[:8]


@triton.heuristics(
    {
        "SIZE": lambda args: triton.next_power_of_2(args["n"]),
        "EVEN": lambda args: args["n"] % args["SIZE"] == 0,
    }
)
@triton.jit
def heuristic_kernel(x_ptr, out_ptr, n, EVEN: tl.constexpr, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    if EVEN:
        x = tl.load(x_ptr + i)
    else:
        x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(out_ptr + i, x, mask=i < n)


def heuristic(tensors, n):
    """The array is computed, and once."""
    out = torch.zeros(n)
    heuristic_kernel[(1,)](tensors.pop(), out, n)
    return out, len(tensors)


@triton.jit
def counted_kernel(x_ptr, out_ptr, n, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)


def counted(x):
    """A grid with a comma and no parentheses, a string with spaces, and comments within."""
    out, blocks = torch.empty_like(x), triton.cdiv(x.numel(), 8)
    # all of it
    counted_kernel[blocks,](
        x,  # what is doubled
        out,
        min(triton.cdiv(x.numel() * 8, SIZES["a   b"]),  # a number
            x.numel()),
        SIZE=8,
    )  # and no more
    counted_kernel[lambda meta: (
        triton.cdiv(x.numel(), meta["SIZE"]),  # enough
    )](out, out.new_empty(out.shape), out.numel(), SIZE=8)
    counted_kernel[1,](x, out, 1, SIZE=8)
    return out


@triton.jit
def annotated_kernel(x_ptr, out_ptr, alpha: tl.float32, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(out_ptr + i, tl.load(x_ptr + i) * alpha)


def annotated(x, alpha):
    """The annotation is the type of the parameter, whatever is passed."""
    out = torch.empty(x.shape)
    annotated_kernel[(1,)](x, out, alpha, SIZE=8)
    return out


@triton.jit
def biased_kernel(x_ptr, bias_ptr, out_ptr, HAS_BIAS: tl.constexpr, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    x = tl.load(x_ptr + i)
    if HAS_BIAS:
        x += tl.load(bias_ptr + i)
    tl.store(out_ptr + i, x)


def biased(x, bias=None):
    out = torch.empty_like(x)
    biased_kernel[x.shape[:0] + (1,)](x, bias, out, HAS_BIAS=bias is not None, SIZE=8)
    return out
'''

TESTS = """\
import pytest
import torch
from host_traps import annotated, biased, counted, default, heuristic, shifted_by_base, tuned


def test_names():
    x = torch.arange(8.0)
    shifted_by_base(x)
    default(x)
    tuned(x)


@pytest.mark.parametrize("n", [8, 5])
def test_heuristic(n):
    heuristic([torch.ones(8), torch.arange(8.0)], n)


def test_counted():
    counted(torch.randn(37))


def test_biased():
    x = torch.randn(8)
    biased(x)
    biased(x, x + 1)


def test_annotated():
    annotated(torch.arange(8.0), 3)
"""
CALLS = 3 + 2 + 1 + 2 + 1
