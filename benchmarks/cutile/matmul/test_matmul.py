"""Correctness and speed of the matrix multiplication."""

import pytest
import torch

pytest.importorskip("cuda.tile", reason="the cuda-tile package is not installed")
from matmul import matmul
from reference import CONFIGS, inputs, torch_version

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="cuTile kernels run on an NVIDIA GPU only"
)

DTYPES = [torch.float16, torch.bfloat16]
# The result is rounded once, an error of half a unit in the last place; one whole unit is allowed.
RTOL = {torch.float16: 2**-10, torch.bfloat16: 2**-7}
# The fp32 sum of K products of about one: an error of 2**-24 at each addition, times four because
# tensor cores may cut off instead of rounding. A product left out would be thousands of times that.
ATOL_PER_K = 2**-22


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(64, 64, 64), (128, 192, 256), (1, 1, 1), (100, 70, 45), (33, 257, 300), (520, 264, 1000)],
)
def test_matmul_cutile(m, n, k, dtype):
    a, b = inputs(m, n, k, dtype)
    expected = torch_version(a.double(), b.double())
    torch.testing.assert_close(
        matmul(a, b).double(), expected, rtol=RTOL[dtype], atol=ATOL_PER_K * k
    )


@pytest.mark.parametrize(("m", "n", "k", "dtype"), CONFIGS, ids=str)
def test_perf_matmul_cutile(m, n, k, dtype, tile_bench):
    arguments = inputs(m, n, k, dtype)
    tile_bench(lambda: matmul(*arguments))
