"""A kernel sums products where it, or a helper, multiplies tiles in a loop."""

from __future__ import annotations

import pytest

from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source

HEAD = """\
import triton
import triton.language as tl


@triton.jit
def times(a, b, acc):
    return tl.dot(a, b, acc)


@triton.jit
def times_twice(a, b, acc):
    return times(a, b, times(a, b, acc))


@triton.jit
def summed(a, b, acc, n):
    for _ in range(n):
        acc = tl.dot(a, b, acc)
    return acc


@triton.jit
def plain(a):
    return a + 1


@triton.jit
def kernel(a, b, acc, n):
    LINES
"""


@pytest.mark.parametrize(
    ("lines", "sums"),
    [
        ("for _ in range(n):\n        acc = tl.dot(a, b, acc)", True),
        ("for _ in range(n):\n        acc += a @ b", True),
        ("for _ in range(n):\n        acc = times(a, b, acc)", True),
        ("for _ in range(n):\n        acc = times_twice(a, b, acc)", True),
        ("acc = summed(a, b, acc, n)", True),
        ("acc = times_twice(a, b, acc)", False),
        ("acc = tl.dot(a, b, acc)\n    for _ in range(n):\n        acc = plain(acc)", False),
    ],
)
def test_whether_products_are_summed(lines: str, sums: bool) -> None:
    source = Source(HEAD.replace("LINES", lines))
    kernel = next(k for k in TRITON.kernels(source) if k.name == "kernel")
    assert TRITON.sums_products(source, kernel) is sums
