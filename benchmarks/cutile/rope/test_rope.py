"""Correctness and speed of the rotary position embedding."""

import pytest
import torch

pytest.importorskip("cuda.tile", reason="the cuda-tile package is not installed")
from reference import CONFIGS, inputs, torch_version
from rope import rope

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="cuTile kernels run on an NVIDIA GPU only"
)

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
# The kernel computes in fp32 and rounds once, an error of half a unit in the last place; one whole
# unit is allowed. In fp32 a product is off by some 1e-7.
RTOL = {torch.float32: 1e-5, torch.float16: 2**-10, torch.bfloat16: 2**-7}
# Where terms cancel, the error is that of the terms, which are about one.
ATOL = {torch.float32: 1e-5, torch.float16: 1e-5, torch.bfloat16: 1e-5}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("batch", "q_heads", "k_heads", "positions", "head_dim"),
    [
        (1, 1, 1, 32, 64),
        (2, 4, 2, 64, 128),
        (1, 2, 1, 1, 64),
        (2, 3, 1, 100, 32),
        (1, 2, 2, 77, 128),
    ],
)
def test_rope_cutile(batch, q_heads, k_heads, positions, head_dim, dtype):
    arguments = inputs(batch, q_heads, k_heads, positions, head_dim, dtype)
    expected = torch_version(*(x.double() for x in arguments))
    for actual, wanted in zip(rope(*arguments), expected, strict=True):
        torch.testing.assert_close(actual.double(), wanted, rtol=RTOL[dtype], atol=ATOL[dtype])


@pytest.mark.parametrize(
    ("batch", "q_heads", "k_heads", "positions", "head_dim", "dtype"), CONFIGS, ids=str
)
def test_perf_rope_cutile(batch, q_heads, k_heads, positions, head_dim, dtype, tile_bench):
    arguments = inputs(batch, q_heads, k_heads, positions, head_dim, dtype)
    tile_bench(lambda: rope(*arguments))
