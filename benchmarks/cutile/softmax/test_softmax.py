"""Correctness and speed of the row softmax."""

import pytest
import torch

pytest.importorskip("cuda.tile", reason="the cuda-tile package is not installed")
from reference import CONFIGS, inputs, torch_version
from softmax import softmax

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="cuTile kernels run on an NVIDIA GPU only"
)

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
# The kernel computes in fp32 and rounds once, an error of half a unit in the last place; one whole
# unit is allowed. In fp32 the error is that of exp at arguments down to about -10, some 1e-6.
RTOL = {torch.float32: 1e-5, torch.float16: 2**-10, torch.bfloat16: 2**-7}
# Small values are subnormal in fp16, and 2**-24 apart.
ATOL = {torch.float32: 1e-12, torch.float16: 2**-24, torch.bfloat16: 1e-12}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("m", "n"), [(1, 1), (4, 128), (3, 1000), (7, 257), (5, 4096)])
def test_softmax_cutile(m, n, dtype):
    arguments = inputs(m, n, dtype)
    expected = torch_version(*(x.double() for x in arguments))
    actual = softmax(*arguments)
    torch.testing.assert_close(actual.double(), expected, rtol=RTOL[dtype], atol=ATOL[dtype])


def test_softmax_cutile_large_values():
    """Without the maximum taken off first, exp would overflow here."""
    (x,) = inputs(4, 100, torch.float32)
    actual = softmax(x + 1000)
    torch.testing.assert_close(
        actual.double(), torch_version((x + 1000).double()), rtol=1e-5, atol=1e-12
    )


@pytest.mark.parametrize(("m", "n", "dtype"), CONFIGS, ids=str)
def test_perf_softmax_cutile(m, n, dtype, tile_bench):
    arguments = inputs(m, n, dtype)
    tile_bench(lambda: softmax(*arguments))
