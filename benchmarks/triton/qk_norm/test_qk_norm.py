"""Correctness and speed of the normalization of queries or keys."""

import pytest
import torch
from qk_norm import qk_norm
from reference import CONFIGS, inputs, torch_version

ON_GPU = torch.cuda.is_available()
# Triton's interpreter computes bfloat16 wrongly, so that type is tried on a GPU only.
DTYPES = [torch.float32, torch.float16] + ([torch.bfloat16] if ON_GPU else [])
# The kernel computes in fp32 and rounds once, an error of half a unit in the last place; one whole
# unit is allowed. In fp32 a sum of 128 squares is off by 128 * 2**-24 at most, in whatever order
# they are added, and the root halves that: 4e-6.
RTOL = {torch.float32: 1e-5, torch.float16: 2**-10, torch.bfloat16: 2**-7}
# Small values are subnormal in fp16, and 2**-24 apart.
ATOL = {torch.float32: 1e-12, torch.float16: 2**-24, torch.bfloat16: 1e-12}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("tokens", "heads", "head_dim"),
    [(1, 1, 128), (1, 3, 64), (7, 3, 80), (50, 3, 128), (9, 8, 128)],
)
def test_qk_norm_triton(tokens, heads, head_dim, dtype):
    arguments = inputs(tokens, heads, head_dim, dtype)
    expected = torch_version(*(x.double() for x in arguments))
    actual = qk_norm(*arguments)
    torch.testing.assert_close(actual.double(), expected, rtol=RTOL[dtype], atol=ATOL[dtype])


def test_qk_norm_triton_eps():
    """With an eps of the size of the squares, leaving it out would show."""
    x, weight = inputs(2, 3, 80, torch.float32)
    actual = qk_norm(x, weight, 0.5)
    expected = torch_version(x.double(), weight.double(), 0.5)
    torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("part", ["heads", "columns"])
def test_qk_norm_triton_part_of_a_tensor(part):
    """The queries may lie beside the keys, and the rows further apart than they are long."""
    x, weight = inputs(4, 6, 128, torch.float32)
    x, weight = (x[:, 1:4], weight) if part == "heads" else (x[:, :, :80], weight[:80])
    actual = qk_norm(x, weight)
    expected = torch_version(x.double(), weight.double())
    torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-12)


@pytest.mark.skipif(not ON_GPU, reason="the interpreter's time says nothing of a GPU's")
@pytest.mark.parametrize(("tokens", "heads", "head_dim", "dtype"), CONFIGS, ids=str)
def test_perf_qk_norm_triton(tokens, heads, head_dim, dtype, tile_bench):
    arguments = inputs(tokens, heads, head_dim, dtype)
    tile_bench(lambda: qk_norm(*arguments))
