"""Correctness and speed of the sum with decays."""

import pytest
import torch
from decay_scan import CHUNK, decay_scan

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TIMED = (512, 8192) if DEVICE == "cuda" else (2, 128)


def inputs(m, n):
    """Numbers, and sums of decays that begin anew with each chunk."""
    steps = torch.nn.functional.logsigmoid(torch.randn(m, n // CHUNK, CHUNK, device=DEVICE))
    return torch.randn(m, n, device=DEVICE), steps.cumsum(-1).view(m, n)


def reference(x, g):
    """Step by step."""
    x, g = x.double().view(-1, CHUNK), g.double().view(-1, CHUNK)
    y = [x[:, 0]]
    for place in range(1, CHUNK):
        y.append(y[-1] * torch.exp(g[:, place] - g[:, place - 1]) + x[:, place])
    return torch.stack(y, dim=1).float()


@pytest.mark.parametrize(("m", "n"), [(1, CHUNK), (3, 2 * CHUNK)])
def test_decay_scan(m, n):
    x, g = inputs(m, n)
    expected = reference(x, g).view(m, n)
    torch.testing.assert_close(decay_scan(x, g), expected, rtol=1e-3, atol=1e-3)


def test_perf_decay_scan(tile_bench):
    x, g = inputs(*TIMED)
    tile_bench(lambda: decay_scan(x, g))
