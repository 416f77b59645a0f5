"""Correctness and speed of the cross entropy."""

import pytest
import torch
from cross_entropy import cross_entropy
from reference import CONFIGS, inputs, torch_version

ON_GPU = torch.cuda.is_available()
# Triton's interpreter computes bfloat16 wrongly, so that type is tried on a GPU only.
DTYPES = [torch.float32, torch.float16] + ([torch.bfloat16] if ON_GPU else [])
# The loss is a sum of exponentials in fp32, off by some 1e-6, and stays fp32.
TOLERANCE = 1e-5


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("m", "n"), [(1, 1), (4, 1024), (3, 1000), (5, 2500), (2, 32000)])
def test_cross_entropy_triton(m, n, dtype):
    logits, labels = inputs(m, n, dtype)
    actual = cross_entropy(logits, labels)
    expected = torch_version(logits.double(), labels)
    torch.testing.assert_close(actual.double(), expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_cross_entropy_triton_large_values():
    """Without the maximum taken off first, exp would overflow here."""
    logits, labels = inputs(4, 1500, torch.float32)
    logits += 1000
    actual = cross_entropy(logits, labels)
    expected = torch_version(logits.double(), labels)
    torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-3)


def test_cross_entropy_triton_first_and_last_label():
    logits, labels = inputs(2, 1500, torch.float16)
    labels[0], labels[1] = 0, 1499
    actual = cross_entropy(logits, labels)
    expected = torch_version(logits.double(), labels)
    torch.testing.assert_close(actual.double(), expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.skipif(not ON_GPU, reason="the interpreter's time says nothing of a GPU's")
@pytest.mark.parametrize(("m", "n", "dtype"), CONFIGS, ids=str)
def test_perf_cross_entropy_triton(m, n, dtype, tile_bench):
    arguments = inputs(m, n, dtype)
    tile_bench(lambda: cross_entropy(*arguments))
