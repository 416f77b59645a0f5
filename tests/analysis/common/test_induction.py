"""Names that go on by the same in each round, and loads that they are the address of."""

from __future__ import annotations

import pytest

from agent.analysis.common.constant_flow import Flow
from agent.analysis.common.needed_sizes import needed_size
from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source

KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, s_ptr, y_ptr, n, by, BLOCK: tl.constexpr):
    total = 0.0
    i = 0
    step = tl.full((), 1, tl.int32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n, other=0.0)
        LINES
    tl.store(y_ptr, total)
"""
SCALED = "total += tl.sum(x, 0) * tl.load({})"


def reason(lines: tuple[str, ...]) -> str | None:
    source = Source(KERNEL.replace("LINES", "\n        ".join(lines)))
    (kernel,) = TRITON.kernels(source)
    return needed_size(Flow(TRITON, source, kernel, "BLOCK"))


@pytest.mark.parametrize(
    "lines",
    [
        (SCALED.format("s_ptr"), "s_ptr += 1"),
        (SCALED.format("s_ptr"), "s_ptr = s_ptr + 1"),
        (SCALED.format("s_ptr"), "s_ptr = by + s_ptr"),
        (SCALED.format("s_ptr"), "s_ptr = s_ptr - by"),
        (SCALED.format("s_ptr"), "s_ptr += step"),
        (SCALED.format("s_ptr"), "one = step * 2", "s_ptr += one"),
        (SCALED.format("s_ptr"), "after = s_ptr + 1", "s_ptr = after"),
        (SCALED.format("s_ptr"), "s_ptr, i = s_ptr + 1, i + 1"),
        (SCALED.format("s_ptr"), "s_ptr = tl.advance(s_ptr, (1,))"),
        (SCALED.format("s_ptr + i"), "i = i + 1"),
        ("own = s_ptr + i", SCALED.format("own"), "i = i + step"),
    ],
)
def test_an_address_that_goes_on_by_the_same_counts_blocks(lines: tuple[str, ...]) -> None:
    assert "counts its blocks" in str(reason(lines))


@pytest.mark.parametrize(
    "lines",
    [
        (SCALED.format("s_ptr"), "s_ptr = s_ptr + BLOCK"),
        (SCALED.format("s_ptr"), "one = step * BLOCK", "s_ptr += one"),
        (SCALED.format("s_ptr"), "s_ptr = tl.advance(s_ptr, (BLOCK,))"),
        (SCALED.format("s_ptr + i * BLOCK"), "i = i + 1"),
        (SCALED.format("s_ptr"), "s_ptr = s_ptr + start"),
        ("own = s_ptr + start", "own = own + by", SCALED.format("own")),
        ("own = s_ptr + start", "own += 1", SCALED.format("own")),
    ],
)
def test_one_that_goes_on_with_the_size_does_not(lines: tuple[str, ...]) -> None:
    assert reason(lines) is None
