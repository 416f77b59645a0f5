"""Correctness and speed of the matrix multiplication."""

import pytest
import torch

pytest.importorskip("cuda.tile", reason="the cuda-tile package is not installed")
from matmul import matmul

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="cuTile kernels run on an NVIDIA GPU only"
)

DTYPES = [torch.float16, torch.bfloat16]
# The result is rounded once, an error of half a unit in the last place; one whole unit is allowed.
RTOL = {torch.float16: 2**-10, torch.bfloat16: 2**-7}
# The fp32 sum of K products of about one: an error of 2**-24 at each addition, times four because
# tensor cores may cut off instead of rounding. A product left out would be thousands of times that.
ATOL_PER_K = 2**-22

PERF_CASES = [(4096, 4096, 4096, torch.bfloat16)]


def make_inputs(m: int, n: int, k: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Standard normal values, the same on every call."""
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(m, k, generator=generator)
    b = torch.randn(k, n, generator=generator)
    return a.to("cuda", dtype), b.to("cuda", dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(64, 64, 64), (128, 192, 256), (1, 1, 1), (100, 70, 45), (33, 257, 300), (520, 264, 1000)],
)
def test_matmul_cutile(m, n, k, dtype):
    a, b = make_inputs(m, n, k, dtype)
    expected = a.double() @ b.double()
    torch.testing.assert_close(
        matmul(a, b).double(), expected, rtol=RTOL[dtype], atol=ATOL_PER_K * k
    )


@pytest.mark.parametrize(("m", "n", "k", "dtype"), PERF_CASES, ids=str)
def test_perf_matmul_cutile(m, n, k, dtype, tile_bench):
    a, b = make_inputs(m, n, k, dtype)
    tile_bench(lambda: matmul(a, b))
