"""Correctness and speed of the residual addition."""

import pytest
import torch
from residual_add import residual_add_

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TIMED = (8192, 4096) if DEVICE == "cuda" else (4, 512)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (3, 100), (4, 256)])
def test_residual_add(m, n):
    h, x = torch.randn(m, n, device=DEVICE), torch.randn(m, n, device=DEVICE)
    expected = h.double() + 0.5 * x.double()
    returned = residual_add_(h, x)
    torch.testing.assert_close(h.double(), expected, rtol=1e-5, atol=1e-6)
    assert returned.data_ptr() == h.data_ptr()


def test_perf_residual_add(tile_bench):
    h, x = torch.randn(*TIMED, device=DEVICE), torch.randn(*TIMED, device=DEVICE)
    tile_bench(lambda: residual_add_(h, x))
