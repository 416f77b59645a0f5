"""Correctness and speed of the GELU with a bias."""

import pytest
import torch
from gelu import gelu

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TIMED = (8192, 4096) if DEVICE == "cuda" else (4, 512)


@pytest.mark.parametrize(("m", "n"), [(1, 7), (3, 100), (5, 257)])
def test_gelu(m, n):
    x, bias = torch.randn(m, n, device=DEVICE), torch.randn(n, device=DEVICE)
    expected = torch.nn.functional.gelu(x.double() + bias.double())
    torch.testing.assert_close(gelu(x, bias).double(), expected, rtol=1e-4, atol=1e-5)


def test_perf_gelu(tile_bench):
    x, bias = torch.randn(*TIMED, device=DEVICE), torch.randn(TIMED[1], device=DEVICE)
    tile_bench(lambda: gelu(x, bias))
