"""Correctness and speed of the layer normalization."""

import pytest
import torch
from layer_norm import layer_norm

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
# Triton's interpreter computes bfloat16 wrongly, so that type is tried on a GPU only.
DTYPES = [torch.float32, torch.float16] + ([torch.bfloat16] if ON_GPU else [])
# The kernel computes in fp32 and rounds once, an error of half a unit in the last place; one whole
# unit is allowed.
RTOL = {torch.float32: 1e-5, torch.float16: 2**-10, torch.bfloat16: 2**-7}
# Where the scaled value and the bias cancel, the fp32 error of the two remains: some units of
# 2**-24 times values of up to about 20.
ATOL = 1e-5

PERF_CASES = (
    [(16384, 8192, torch.bfloat16), (16384, 4096, torch.float16)]
    if ON_GPU
    else [(8, 8192, torch.float32)]
)


def make_inputs(
    m: int, n: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x with a mean of 2, a weight and a bias; the same on every call."""
    generator = torch.Generator().manual_seed(0)
    x = 2 + torch.randn(m, n, generator=generator)
    weight = torch.randn(n, generator=generator)
    bias = torch.randn(n, generator=generator)
    return x.to(DEVICE, dtype), weight.to(DEVICE, dtype), bias.to(DEVICE, dtype)


def reference(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> torch.Tensor:
    """The same in fp64."""
    return torch.nn.functional.layer_norm(
        x.double(), (x.shape[-1],), weight.double(), bias.double(), eps
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("m", "n"), [(2, 16), (4, 1024), (3, 1000), (5, 2500), (2, 8192)])
def test_layer_norm_triton(m, n, dtype):
    x, weight, bias = make_inputs(m, n, dtype)
    actual = layer_norm(x, weight, bias, 1e-5)
    expected = reference(x, weight, bias, 1e-5)
    torch.testing.assert_close(actual.double(), expected, rtol=RTOL[dtype], atol=ATOL)


def test_layer_norm_triton_eps():
    """A row of equal values has no variance: eps alone keeps the result finite."""
    _, weight, bias = make_inputs(1, 300, torch.float32)
    x = torch.full((2, 300), 0.5, device=DEVICE)
    actual = layer_norm(x, weight, bias, 1e-2)
    torch.testing.assert_close(actual.double(), bias.double().expand(2, -1), rtol=0, atol=ATOL)


def test_layer_norm_triton_padded_rows():
    """The rows may lie further apart than they are long."""
    x, weight, bias = make_inputs(3, 1500, torch.float32)
    x, weight, bias = x[:, :1200], weight[:1200], bias[:1200]
    actual = layer_norm(x, weight, bias, 1e-5)
    expected = reference(x, weight, bias, 1e-5)
    torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=ATOL)


@pytest.mark.parametrize(("m", "n", "dtype"), PERF_CASES, ids=str)
def test_perf_layer_norm_triton(m, n, dtype, tile_bench):
    x, weight, bias = make_inputs(m, n, dtype)
    tile_bench(lambda: layer_norm(x, weight, bias))
