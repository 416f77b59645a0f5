"""Masks that end where a loop does, and masks of more than the loop goes over."""

from __future__ import annotations

import pytest

from agent.analysis.common.constant_flow import Flow
from agent.analysis.common.growth import may_grow
from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source

KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, m, length, PARTS: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    pid = tl.program_id(0)
    begin = pid * length
    rows = pid * M + tl.arange(0, M)
    own = tl.arange(0, N)
    total = 0.0
    for i in RANGE:
        at = INDEX
        x = tl.load(x_ptr + at, mask=MASK, other=0.0)
        total += tl.sum(x, 0)
    tl.atomic_add(y_ptr, total)
"""


def grows(bounds: str, index: str, mask: str, store: str = "") -> bool:
    text = KERNEL.replace("RANGE", bounds).replace("INDEX", index).replace("MASK", mask)
    source = Source(text.replace("total += tl.sum(x, 0)", store) if store else text)
    (kernel,) = TRITON.kernels(source)
    return may_grow(Flow(TRITON, source, kernel, "N"))


@pytest.mark.parametrize(
    ("bounds", "index", "mask"),
    [
        ("range(0, n, N)", "i + own", "at < n"),
        ("range(0, n, N)", "i + own", "own < n - i"),
        ("range(0, n, N)", "i + own", "n > at"),
        ("range(0, tl.cdiv(n, N))", "i * N + own", "at < n"),
        ("range(0, tl.cdiv(n, N))", "i * N + own", "own < n - i * N"),
        ("range(0, tl.cdiv(n, N * PARTS))", "i * N * PARTS + pid * N + own", "at < n"),
        ("range(pid * N, n, N * PARTS)", "i + own", "at < n"),
        ("range(begin, begin + length, N)", "i + own", "(at < begin + length) & (at < n)"),
        ("range(begin, tl.minimum(begin + length, n), N)", "i + own",
         "at < tl.minimum(begin + length, n)"),
        ("range(0, tl.cdiv(length, N))", "begin + i * N + own", "at < begin + length"),
        ("range(0, n + m, N)", "i + own", "at < n"),
        ("range(0, tl.where(rows < n, 1, 0) * m, N)", "i + own", "at < m"),
        ("range(0, n, 2 * N)", "i + tl.arange(0, 2 * N)", "at < n"),
    ],
)  # fmt: skip
def test_a_mask_that_ends_with_the_loop_lets_its_block_grow(
    bounds: str, index: str, mask: str
) -> None:
    assert grows(bounds, index, mask)


@pytest.mark.parametrize(
    ("bounds", "index", "mask"),
    [
        ("range(0, n, N)", "i + own", "at < m"),
        ("range(0, tl.cdiv(n, N))", "i * N + own", "at < m"),
        ("range(begin, begin + length, N)", "i + own", "at < n"),
        ("range(begin, tl.minimum(begin + length, n), N)", "i + own", "at < n"),
        ("range(0, tl.cdiv(length, N))", "begin + i * N + own", "at < n"),
        ("range(0, n, N)", "i + own", "(at < n) | (at < m)"),
    ],
)
def test_one_that_ends_behind_it_does_not(bounds: str, index: str, mask: str) -> None:
    assert not grows(bounds, index, mask)


def test_a_causal_mask_ends_with_the_programs_own_rows() -> None:
    text = KERNEL.replace("RANGE", "range(0, (pid + 1) * M, N)").replace("INDEX", "i + own")
    text = text.replace("MASK", "at < n")
    causal = "tl.sum(tl.where(rows[:, None] >= at[None, :], x[None, :], 0.0))"
    for summed, right in ((causal, True), (causal.replace(">=", "<="), False)):
        source = Source(text.replace("tl.sum(x, 0)", summed))
        (kernel,) = TRITON.kernels(source)
        assert may_grow(Flow(TRITON, source, kernel, "N")) is right


def test_what_a_segment_stores_stays_in_it() -> None:
    store = "tl.store(y_ptr + at, x, mask=at < {})"
    for end, right in (("n", False), ("begin + length", True)):
        found = grows("range(begin, begin + length, N)", "i + own", "at < begin + length",
                      store.format(end))  # fmt: skip
        assert found is right


def test_what_a_masked_load_is_multiplied_with_may_be_more() -> None:
    other = "w = tl.load(y_ptr + at, mask=at < m, other=0.0)\n        "
    assert grows("range(0, n, N)", "i + own", "at < n", f"{other}total += tl.sum(x * w, 0)")
    assert not grows("range(0, n, N)", "i + own", "at < n", f"{other}total += tl.sum(w, 0)")
