"""Correctness and speed of the root-mean-square normalization."""

import pytest
import torch
from rms_norm import rms_norm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TIMED = (8192, 4096) if DEVICE == "cuda" else (4, 512)


def reference(x, weight):
    """In double precision."""
    x = x.double()
    return x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + 1e-6) * weight.double()


@pytest.mark.parametrize(("m", "n"), [(1, 3), (2, 128), (3, 300)])
def test_rms_norm(m, n):
    x, weight = torch.randn(m, n, device=DEVICE), torch.randn(n, device=DEVICE)
    expected = reference(x, weight)
    torch.testing.assert_close(rms_norm(x, weight).double(), expected, rtol=1e-3, atol=1e-4)


def test_perf_rms_norm(tile_bench):
    x, weight = torch.randn(*TIMED, device=DEVICE), torch.randn(TIMED[1], device=DEVICE)
    tile_bench(lambda: rms_norm(x, weight))
