"""Correctness and speed of the layer normalization."""

import pytest
import torch
from layer_norm import layer_norm
from reference import CONFIGS, inputs, torch_version

ON_GPU = torch.cuda.is_available()
# Triton's interpreter computes bfloat16 wrongly, so that type is tried on a GPU only.
DTYPES = [torch.float32, torch.float16] + ([torch.bfloat16] if ON_GPU else [])
# The kernel computes in fp32 and rounds once, an error of half a unit in the last place; one whole
# unit is allowed. In fp32 mean and variance are off by some 1e-6 at most.
RTOL = {torch.float32: 1e-5, torch.float16: 2**-10, torch.bfloat16: 2**-7}
# Where terms cancel, the error is that of the terms, which are about one.
ATOL = {torch.float32: 1e-5, torch.float16: 1e-5, torch.bfloat16: 1e-5}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("m", "n"), [(2, 16), (4, 1024), (3, 1000), (5, 2500), (2, 8192)])
def test_layer_norm_triton(m, n, dtype):
    arguments = inputs(m, n, dtype)
    expected = torch_version(*(x.double() for x in arguments))
    actual = layer_norm(*arguments)
    torch.testing.assert_close(actual.double(), expected, rtol=RTOL[dtype], atol=ATOL[dtype])


def test_layer_norm_triton_far_from_zero():
    """A variance taken as mean square less squared mean would be wrong here."""
    x, weight, bias = inputs(3, 1000, torch.float32)
    x += 1000
    actual = layer_norm(x, weight, bias)
    expected = torch_version(x.double(), weight.double(), bias.double())
    torch.testing.assert_close(actual.double(), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.skipif(not ON_GPU, reason="the interpreter's time says nothing of a GPU's")
@pytest.mark.parametrize(("m", "n", "dtype"), CONFIGS, ids=str)
def test_perf_layer_norm_triton(m, n, dtype, tile_bench):
    arguments = inputs(m, n, dtype)
    tile_bench(lambda: layer_norm(*arguments))
