"""Correctness and speed of the row softmax."""

import pytest
import torch

pytest.importorskip("cuda.tile", reason="the cuda-tile package is not installed")
from softmax import softmax

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="cuTile kernels run on an NVIDIA GPU only"
)

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
# The kernel computes in fp32 and rounds once, an error of half a unit in the last place; one whole
# unit is allowed. In fp32 the error is that of exp at arguments down to about -10, some 1e-6.
RTOL = {torch.float32: 1e-5, torch.float16: 2**-10, torch.bfloat16: 2**-7}
# Small probabilities are subnormal in fp16, and 2**-24 apart.
ATOL = {torch.float32: 1e-12, torch.float16: 2**-24, torch.bfloat16: 1e-12}

PERF_CASES = [(16384, 4096, torch.bfloat16)]


def make_input(m: int, n: int, dtype: torch.dtype) -> torch.Tensor:
    """Standard normal values, the same on every call."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(m, n, generator=generator).to("cuda", dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("m", "n"), [(1, 1), (4, 128), (3, 1000), (7, 257), (5, 4096)])
def test_softmax_cutile(m, n, dtype):
    x = make_input(m, n, dtype)
    expected = torch.softmax(x.double(), dim=-1)
    torch.testing.assert_close(softmax(x).double(), expected, rtol=RTOL[dtype], atol=ATOL[dtype])


def test_softmax_cutile_large_values():
    """Without the maximum taken off first, exp would overflow here."""
    x = make_input(4, 100, torch.float32) + 1000
    expected = torch.softmax(x.double(), dim=-1)
    torch.testing.assert_close(softmax(x).double(), expected, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize(("m", "n", "dtype"), PERF_CASES, ids=str)
def test_perf_softmax_cutile(m, n, dtype, tile_bench):
    x = make_input(m, n, dtype)
    tile_bench(lambda: softmax(x))
