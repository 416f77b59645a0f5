"""Correctness and speed of the matrix multiplication."""

import pytest
import torch
from cutile_matmul import matmul


@pytest.mark.parametrize(("m", "n", "k"), [(16, 16, 16), (20, 33, 7), (17, 5, 40)])
def test_matmul(m, n, k):
    a = torch.randn(m, k, device="cuda", dtype=torch.float16)
    b = torch.randn(k, n, device="cuda", dtype=torch.float16)
    expected = a.double() @ b.double()
    assert torch.allclose(matmul(a, b).double(), expected, rtol=1e-2, atol=5e-2)


def test_perf_matmul(tile_bench):
    a = torch.randn(1024, 1024, device="cuda", dtype=torch.float16)
    b = torch.randn(1024, 1024, device="cuda", dtype=torch.float16)
    tile_bench(lambda: matmul(a, b))
