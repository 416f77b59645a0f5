"""Correctness and speed of the matrix multiplication."""

import pytest
import torch
from matmul import matmul

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
# Triton's interpreter computes bfloat16 wrongly, so that type is tried on a GPU only.
DTYPES = [torch.float16] + ([torch.bfloat16] if ON_GPU else [])
# The result is rounded once, an error of half a unit in the last place; one whole unit is allowed.
RTOL = {torch.float16: 2**-10, torch.bfloat16: 2**-7}
# The fp32 sum of K products of about one: an error of 2**-24 at each addition, times four because
# tensor cores may cut off instead of rounding. A product left out would be thousands of times that.
ATOL_PER_K = 2**-22

PERF_CASES = (
    [(4096, 4096, 4096, torch.float16), (8192, 4096, 2048, torch.bfloat16)]
    if ON_GPU
    else [(256, 256, 128, torch.float16)]
)


def make_inputs(m: int, n: int, k: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Standard normal values, the same on every call."""
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(m, k, generator=generator)
    b = torch.randn(k, n, generator=generator)
    return a.to(DEVICE, dtype), b.to(DEVICE, dtype)


def check(actual: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    """Compare with the product in fp64."""
    expected = a.double() @ b.double()
    atol = ATOL_PER_K * a.shape[1]
    torch.testing.assert_close(actual.double(), expected, rtol=RTOL[a.dtype], atol=atol)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("m", "n", "k"), [(64, 64, 32), (128, 192, 256), (1, 1, 1), (100, 70, 45), (33, 257, 300)]
)
def test_matmul_triton(m, n, k, dtype):
    a, b = make_inputs(m, n, k, dtype)
    check(matmul(a, b), a, b)


def test_matmul_triton_transposed():
    """Either matrix may be a transposed view."""
    b, a = make_inputs(90, 110, 70, torch.float16)
    check(matmul(a.T, b.T), a.T, b.T)


@pytest.mark.parametrize(("m", "n", "k", "dtype"), PERF_CASES, ids=str)
def test_perf_matmul_triton(m, n, k, dtype, tile_bench):
    a, b = make_inputs(m, n, k, dtype)
    tile_bench(lambda: matmul(a, b))
