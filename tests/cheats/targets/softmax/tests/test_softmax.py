"""Correctness and speed of the row softmax."""

import pytest
import torch
from softmax import softmax

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TIMED = (8192, 4096) if DEVICE == "cuda" else (8, 512)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (4, 128), (7, 257)])
def test_softmax(m, n):
    x = torch.randn(m, n, device=DEVICE)
    expected = torch.softmax(x.double(), dim=-1)
    torch.testing.assert_close(softmax(x).double(), expected, rtol=1e-5, atol=1e-9)


def test_softmax_of_large_values():
    x = torch.randn(3, 100, device=DEVICE) + 1000
    expected = torch.softmax(x.double(), dim=-1)
    torch.testing.assert_close(softmax(x).double(), expected, rtol=1e-5, atol=1e-9)


def test_perf_softmax(tile_bench):
    x = torch.randn(*TIMED, device=DEVICE)
    tile_bench(lambda: softmax(x))
