"""Correctness and speed of the attention."""

import pytest
import torch
from attention import attention
from reference import CONFIGS, inputs, torch_version

ON_GPU = torch.cuda.is_available()
# Triton's interpreter computes bfloat16 wrongly, so that type is tried on a GPU only.
DTYPES = [torch.float16] + ([torch.bfloat16] if ON_GPU else [])
# The weights are rounded before they multiply the values, and the result is rounded: an error of
# half a unit in the last place of each, times the largest value, which is about four.
TOLERANCE = {torch.float16: 2**-9, torch.bfloat16: 2**-6}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("batch", "heads", "positions", "head_dim"),
    [(1, 2, 1, 64), (2, 3, 256, 128), (1, 2, 333, 128)],
)
def test_attention_triton(batch, heads, positions, head_dim, dtype):
    q, k, v = inputs(batch, heads, positions, head_dim, dtype)
    actual = attention(q, k, v)
    expected = torch_version(q.double(), k.double(), v.double())
    torch.testing.assert_close(
        actual.double(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]
    )


def test_attention_triton_large_scores():
    """Without the maximum taken off first, exp would overflow here."""
    q, k, v = inputs(1, 1, 203, 128, torch.float16)
    actual = attention(4 * q, 4 * k, v)
    expected = torch_version(4 * q.double(), 4 * k.double(), v.double())
    torch.testing.assert_close(actual.double(), expected, rtol=2**-9, atol=2**-9)


@pytest.mark.skipif(not ON_GPU, reason="the interpreter's time says nothing of a GPU's")
@pytest.mark.parametrize(("batch", "heads", "positions", "head_dim", "dtype"), CONFIGS, ids=str)
def test_perf_attention_triton(batch, heads, positions, head_dim, dtype, tile_bench):
    arguments = inputs(batch, heads, positions, head_dim, dtype)
    tile_bench(lambda: attention(*arguments))
