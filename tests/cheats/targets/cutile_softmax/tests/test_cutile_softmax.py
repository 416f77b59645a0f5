"""Correctness and speed of the row softmax."""

import pytest
import torch
from cutile_softmax import softmax


@pytest.mark.parametrize(("m", "n"), [(1, 1), (4, 128), (7, 257)])
def test_softmax(m, n):
    x = torch.randn(m, n, device="cuda")
    expected = torch.softmax(x.double(), dim=-1)
    torch.testing.assert_close(softmax(x).double(), expected, rtol=1e-5, atol=1e-9)


def test_perf_softmax(tile_bench):
    x = torch.randn(8192, 4096, device="cuda")
    tile_bench(lambda: softmax(x))
