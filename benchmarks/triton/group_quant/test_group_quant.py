"""Correctness and speed of the quantization of groups."""

import pytest
import torch
from group_quant import group_quant
from reference import CONFIGS, inputs, torch_version

ON_GPU = torch.cuda.is_available()
# Triton's interpreter computes bfloat16 wrongly, so that type is tried on a GPU only.
DTYPES = [torch.float32, torch.float16] + ([torch.bfloat16] if ON_GPU else [])
# The maximum is exact, and a GPU's division is off by two units in the last place at most, 2**-22.
# Twice that is allowed: for the scale, and for x / scale, which has two divisions behind it.
RTOL = 2**-21


def values(m, n, group_size, dtype):
    """Standard normal; without a GPU, zero where Triton's interpreter rounds to fp8 wrongly.

    It may lose the carry into the exponent, at and below powers of two, and it cuts off subnormal
    numbers, those below 2**-6.
    """
    (x,) = inputs(m, n, dtype)
    if ON_GPU:
        return x
    _, scale = torch_version(x.double(), group_size)
    quotient = (x / scale.repeat_interleave(group_size, dim=-1)).abs()
    mantissa = quotient.frexp().mantissa
    return x.masked_fill((quotient < 2**-6) | (mantissa < 0.51) | (mantissa > 0.93), 0)


def check(x, group_size):
    """The scale is right, and each number as near to x / scale as fp32 can tell."""
    quantized, scale = group_quant(x, group_size)
    expected, expected_scale = torch_version(x.double(), group_size)
    assert (quantized.dtype, scale.dtype) == (torch.float8_e4m3fn, torch.float32)
    assert quantized.shape == x.shape
    torch.testing.assert_close(scale.double(), expected_scale, rtol=RTOL, atol=0)
    quotient = x.double() / expected_scale.repeat_interleave(group_size, dim=-1)
    off, least = (quantized.double() - quotient).abs(), (expected.double() - quotient).abs()
    # A quotient, 448 at most, that is off by RTOL may lie nearer to another number, which is then
    # further from the right one by up to twice that. The numbers are 2**-9 apart or more.
    torch.testing.assert_close(off, least, rtol=0, atol=2 * RTOL * 448)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("m", "n", "group_size"),
    [(1, 128, 128), (7, 384, 128), (3, 192, 64), (1, 96, 96), (5, 288, 96)],
)
def test_group_quant_triton(m, n, group_size, dtype):
    check(values(m, n, group_size, dtype), group_size)


def test_group_quant_triton_more_dimensions():
    check(values(6, 256, 128, torch.float32).view(2, 3, 256), 128)


@pytest.mark.parametrize("value", [0.0, 24e-10 / 448, 3e38])
def test_group_quant_triton_one_value(value):
    """A group of zeros, one below the least scale, and one that is almost infinite."""
    x = values(3, 384, 128, torch.float32)
    x[1, 128:256] = value
    check(x, 128)


def test_group_quant_triton_huge_value():
    """The others of its group vanish, those of other groups do not."""
    x = values(3, 384, 128, torch.float32)
    x[1, 200] = -1e8
    check(x, 128)


@pytest.mark.skipif(not ON_GPU, reason="the interpreter's time says nothing of a GPU's")
@pytest.mark.parametrize(("m", "n", "dtype"), CONFIGS, ids=str)
def test_perf_group_quant_triton(m, n, dtype, tile_bench):
    arguments = inputs(m, n, dtype)
    tile_bench(lambda: group_quant(*arguments))
