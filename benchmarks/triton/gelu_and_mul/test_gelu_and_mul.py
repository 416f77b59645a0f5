"""Correctness and speed of GELU and multiplication."""

import pytest
import torch
from gelu_and_mul import gelu_and_mul
from reference import CONFIGS, inputs, torch_version

ON_GPU = torch.cuda.is_available()
# Triton's interpreter computes bfloat16 wrongly, so that type is tried on a GPU only.
DTYPES = [torch.float32, torch.float16] + ([torch.bfloat16] if ON_GPU else [])
# The kernel computes in fp32 and rounds once, an error of half a unit in the last place; one whole
# unit is allowed. In fp32 the error is that of exp, some 1e-6.
RTOL = {torch.float32: 1e-5, torch.float16: 2**-10, torch.bfloat16: 2**-7}
# Left of zero 1 + tanh cancels: its error is 2**-23, of a product that is about ten at most.
ATOL = {torch.float32: 2e-6, torch.float16: 2e-6, torch.bfloat16: 2e-6}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("m", "n"), [(1, 16), (3, 1024), (4, 1000), (2, 2500)])
def test_gelu_and_mul_triton(m, n, dtype):
    arguments = inputs(m, n, dtype)
    expected = torch_version(*(x.double() for x in arguments))
    actual = gelu_and_mul(*arguments)
    torch.testing.assert_close(actual.double(), expected, rtol=RTOL[dtype], atol=ATOL[dtype])


@pytest.mark.skipif(not ON_GPU, reason="the interpreter's time says nothing of a GPU's")
@pytest.mark.parametrize(("m", "n", "dtype"), CONFIGS, ids=str)
def test_perf_gelu_and_mul_triton(m, n, dtype, tile_bench):
    arguments = inputs(m, n, dtype)
    tile_bench(lambda: gelu_and_mul(*arguments))
