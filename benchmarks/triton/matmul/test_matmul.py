"""Correctness and speed of the matrix multiplication."""

import pytest
import torch
from matmul import matmul
from reference import CONFIGS, inputs, torch_version

ON_GPU = torch.cuda.is_available()
# Triton's interpreter computes bfloat16 wrongly, so that type is tried on a GPU only.
DTYPES = [torch.float16] + ([torch.bfloat16] if ON_GPU else [])
# The result is rounded once, an error of half a unit in the last place; one whole unit is allowed.
RTOL = {torch.float16: 2**-10, torch.bfloat16: 2**-7}
# The fp32 sum of K products of about one: an error of 2**-24 at each addition, times four because
# tensor cores may cut off instead of rounding. A product left out would be thousands of times that.
ATOL_PER_K = 2**-22


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (128, 192, 256), (33, 257, 300), (1100, 300, 130)]
)
def test_matmul_triton(m, n, k, dtype):
    a, b = inputs(m, n, k, dtype)
    expected = torch_version(a.double(), b.double())
    torch.testing.assert_close(
        matmul(a, b).double(), expected, rtol=RTOL[dtype], atol=ATOL_PER_K * k
    )


def test_matmul_triton_transposed():
    """Either matrix may be a transposed view."""
    b, a = inputs(90, 110, 70, torch.float16)
    expected = torch_version(a.T.double(), b.T.double())
    torch.testing.assert_close(
        matmul(a.T, b.T).double(), expected, rtol=2**-10, atol=ATOL_PER_K * 70
    )


@pytest.mark.skipif(not ON_GPU, reason="the interpreter's time says nothing of a GPU's")
@pytest.mark.parametrize(("m", "n", "k", "dtype"), CONFIGS, ids=str)
def test_perf_matmul_triton(m, n, k, dtype, tile_bench):
    arguments = inputs(m, n, k, dtype)
    tile_bench(lambda: matmul(*arguments))
