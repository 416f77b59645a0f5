"""Correctness and speed of the transposition."""

import pytest
import torch
from reference import CONFIGS, inputs, torch_version
from transpose import transpose

ON_GPU = torch.cuda.is_available()
# Triton's interpreter computes bfloat16 wrongly, so that type is tried on a GPU only.
DTYPES = [torch.float32, torch.float16] + ([torch.bfloat16] if ON_GPU else [])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("m", "n"), [(1, 1), (32, 32), (64, 96), (33, 100), (257, 31)])
def test_transpose_triton(m, n, dtype):
    (x,) = inputs(m, n, dtype)
    actual = transpose(x)
    assert actual.is_contiguous()
    assert torch.equal(actual, torch_version(x))


def test_transpose_triton_padded_rows():
    """The rows may lie further apart than they are long."""
    (x,) = inputs(60, 70, torch.float32)
    assert torch.equal(transpose(x[:, :50]), torch_version(x[:, :50]))


@pytest.mark.skipif(not ON_GPU, reason="the interpreter's time says nothing of a GPU's")
@pytest.mark.parametrize(("m", "n", "dtype"), CONFIGS, ids=str)
def test_perf_transpose_triton(m, n, dtype, tile_bench):
    arguments = inputs(m, n, dtype)
    tile_bench(lambda: transpose(*arguments))
