"""Correctness and speed of the matrix multiplication."""

import pytest
import torch
from matmul import matmul

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TIMED = 1024 if DEVICE == "cuda" else 64


@pytest.mark.parametrize(("m", "n", "k"), [(16, 16, 16), (20, 33, 7), (17, 5, 40)])
def test_matmul(m, n, k):
    a, b = torch.randn(m, k, device=DEVICE), torch.randn(k, n, device=DEVICE)
    expected = a.double() @ b.double()
    assert torch.allclose(matmul(a, b).double(), expected, rtol=1e-2, atol=5e-2)


def test_perf_matmul(tile_bench):
    a, b = torch.randn(TIMED, TIMED, device=DEVICE), torch.randn(TIMED, TIMED, device=DEVICE)
    tile_bench(lambda: matmul(a, b))
