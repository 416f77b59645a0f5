"""Correctness and speed of the row softmax."""

import pytest
import torch
from reference import CONFIGS, inputs, torch_version
from softmax import softmax

ON_GPU = torch.cuda.is_available()
# Triton's interpreter computes bfloat16 wrongly, so that type is tried on a GPU only.
DTYPES = [torch.float32, torch.float16] + ([torch.bfloat16] if ON_GPU else [])
# The kernel computes in fp32 and rounds once, an error of half a unit in the last place; one whole
# unit is allowed. In fp32 the error is that of exp at arguments down to about -10, some 1e-6.
RTOL = {torch.float32: 1e-5, torch.float16: 2**-10, torch.bfloat16: 2**-7}
# Small values are subnormal in fp16, and 2**-24 apart.
ATOL = {torch.float32: 1e-12, torch.float16: 2**-24, torch.bfloat16: 1e-12}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("m", "n"), [(4, 128), (3, 1000), (2, 20000)])
def test_softmax_triton(m, n, dtype):
    arguments = inputs(m, n, dtype)
    expected = torch_version(*(x.double() for x in arguments))
    actual = softmax(*arguments)
    torch.testing.assert_close(actual.double(), expected, rtol=RTOL[dtype], atol=ATOL[dtype])


def test_softmax_triton_large_values():
    """Without the maximum taken off first, exp would overflow here."""
    (x,) = inputs(4, 100, torch.float32)
    actual = softmax(x + 1000)
    torch.testing.assert_close(
        actual.double(), torch_version((x + 1000).double()), rtol=1e-5, atol=1e-12
    )


def test_softmax_triton_padded_rows():
    """The rows may lie further apart than they are long."""
    (x,) = inputs(6, 300, torch.float32)
    actual = softmax(x[:, :200])
    expected = torch_version(x[:, :200].double())
    torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-12)


@pytest.mark.skipif(not ON_GPU, reason="the interpreter's time says nothing of a GPU's")
@pytest.mark.parametrize(("m", "n", "dtype"), CONFIGS, ids=str)
def test_perf_softmax_triton(m, n, dtype, tile_bench):
    arguments = inputs(m, n, dtype)
    tile_bench(lambda: softmax(*arguments))
