"""Correctness and speed of the root-mean-square normalization."""

import pytest
import torch
from cutile_rms_norm import rms_norm


@pytest.mark.parametrize(("m", "n"), [(1, 3), (4, 128), (3, 300)])
def test_rms_norm(m, n):
    x, weight = torch.randn(m, n, device="cuda"), torch.randn(n, device="cuda")
    wide = x.double()
    expected = wide / torch.sqrt((wide * wide).mean(dim=-1, keepdim=True) + 1e-6) * weight.double()
    torch.testing.assert_close(rms_norm(x, weight).double(), expected, rtol=1e-3, atol=1e-4)


def test_perf_rms_norm(tile_bench):
    x, weight = torch.randn(8192, 4096, device="cuda"), torch.randn(4096, device="cuda")
    tile_bench(lambda: rms_norm(x, weight))
