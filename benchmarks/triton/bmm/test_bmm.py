"""Correctness and speed of the batched matrix multiplication."""

import pytest
import torch
from bmm import bmm
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
    ("batch", "m", "n", "k"),
    [(2, 1, 1, 1), (3, 128, 192, 256), (2, 600, 257, 100)],
)
def test_bmm_triton(batch, m, n, k, dtype):
    a, b = inputs(batch, m, n, k, dtype)
    expected = torch_version(a.double(), b.double())
    torch.testing.assert_close(bmm(a, b).double(), expected, rtol=RTOL[dtype], atol=ATOL_PER_K * k)


@pytest.mark.skipif(not ON_GPU, reason="the interpreter's time says nothing of a GPU's")
@pytest.mark.parametrize(("batch", "m", "n", "k", "dtype"), CONFIGS, ids=str)
def test_perf_bmm_triton(batch, m, n, k, dtype, tile_bench):
    arguments = inputs(batch, m, n, k, dtype)
    tile_bench(lambda: bmm(*arguments))
