"""Correctness and speed of the root-mean-square normalization."""

import pytest
import torch
from reference import CONFIGS, inputs, torch_version
from rms_norm import rms_norm

ON_GPU = torch.cuda.is_available()
# Triton's interpreter computes bfloat16 wrongly, so that type is tried on a GPU only.
DTYPES = [torch.float32, torch.float16] + ([torch.bfloat16] if ON_GPU else [])
# The kernel computes in fp32 and rounds once, an error of half a unit in the last place; one whole
# unit is allowed. In fp32 the mean of the squares is off by some 1e-6 at most.
RTOL = {torch.float32: 1e-5, torch.float16: 2**-10, torch.bfloat16: 2**-7}
# Small values are subnormal in fp16, and 2**-24 apart.
ATOL = {torch.float32: 1e-12, torch.float16: 2**-24, torch.bfloat16: 1e-12}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("m", "n"), [(2, 16), (3, 1000), (2, 10000)])
def test_rms_norm_triton(m, n, dtype):
    arguments = inputs(m, n, dtype)
    expected = torch_version(*(x.double() for x in arguments))
    actual = rms_norm(*arguments)
    torch.testing.assert_close(actual.double(), expected, rtol=RTOL[dtype], atol=ATOL[dtype])


def test_rms_norm_triton_eps():
    """With an eps of the size of the squares, leaving it out would show."""
    x, weight = inputs(3, 300, torch.float32)
    actual = rms_norm(x, weight, 0.5)
    expected = torch_version(x.double(), weight.double(), 0.5)
    torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-12)


@pytest.mark.skipif(not ON_GPU, reason="the interpreter's time says nothing of a GPU's")
@pytest.mark.parametrize(("m", "n", "dtype"), CONFIGS, ids=str)
def test_perf_rms_norm_triton(m, n, dtype, tile_bench):
    arguments = inputs(m, n, dtype)
    tile_bench(lambda: rms_norm(*arguments))
