"""Correctness and speed of the embedding."""

import pytest
import torch
from embedding import embedding
from reference import CONFIGS, inputs, torch_version

ON_GPU = torch.cuda.is_available()
# Triton's interpreter computes bfloat16 wrongly, so that type is tried on a GPU only.
DTYPES = [torch.float32, torch.float16] + ([torch.bfloat16] if ON_GPU else [])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("m", "v", "n"), [(1, 1, 1), (5, 7, 256), (40, 10, 1000), (3, 300, 77)])
def test_embedding_triton(m, v, n, dtype):
    indices, table = inputs(m, v, n, dtype)
    assert torch.equal(embedding(indices, table), torch_version(indices, table))


def test_embedding_triton_first_and_last_row():
    indices, table = inputs(2, 30, 300, torch.float32)
    indices[0], indices[1] = 0, 29
    assert torch.equal(embedding(indices, table), torch_version(indices, table))


@pytest.mark.skipif(not ON_GPU, reason="the interpreter's time says nothing of a GPU's")
@pytest.mark.parametrize(("m", "v", "n", "dtype"), CONFIGS, ids=str)
def test_perf_embedding_triton(m, v, n, dtype, tile_bench):
    arguments = inputs(m, v, n, dtype)
    tile_bench(lambda: embedding(*arguments))
