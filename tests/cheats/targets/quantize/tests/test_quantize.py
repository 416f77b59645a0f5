"""Correctness and speed of the quantization."""

import pytest
import torch
from quantize import quantize

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TIMED = (8192, 4096) if DEVICE == "cuda" else (6, 512)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (4, 128), (5, 200)])
def test_quantize(m, n):
    x = torch.randn(m, n, device=DEVICE)
    x[-1] = 0
    q, scale, zero = quantize(x)
    largest = x.abs().amax(dim=1)
    expected_scale = torch.where(largest == 0, 1.0, largest / 127)
    torch.testing.assert_close(scale, expected_scale, rtol=1e-6, atol=0)
    assert torch.equal(zero, largest == 0)
    assert torch.equal(q, torch.floor(x / scale[:, None] + 0.5).to(torch.int8))


def test_perf_quantize(tile_bench):
    x = torch.randn(*TIMED, device=DEVICE)
    tile_bench(lambda: quantize(x))
