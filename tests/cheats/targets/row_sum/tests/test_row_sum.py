"""Correctness and speed of the row sums."""

import pytest
import torch
from row_sum import row_sum

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TIMED = (8192, 4096) if DEVICE == "cuda" else (4, 512)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (3, 64), (3, 200)])
def test_row_sum(m, n):
    x = torch.randn(m, n, device=DEVICE)
    expected = x.double().sum(dim=1).float()
    torch.testing.assert_close(row_sum(x), expected, rtol=1e-3, atol=1e-3)


def test_perf_row_sum(tile_bench):
    x = torch.randn(*TIMED, device=DEVICE)
    tile_bench(lambda: row_sum(x))
