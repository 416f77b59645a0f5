"""Whether a reduction runs along a block, which how a kernel lays out its tiles tells."""

from __future__ import annotations

import pytest

from agent.analysis.common.constant_flow import Flow
from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source

TEXT = """
import triton
import triton.language as tl

@triton.jit
def helper(x):
    return x

@triton.jit
def k(x_ptr, y_ptr, m, n, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    at = rows[:, None] * n + cols[None, :]
    x = tl.load(x_ptr + at, mask=(rows[:, None] < m) & (cols[None, :] < n))
    {body}

k[(1,)](x, y, m, n, 4, 64)
"""
PLAIN = "tl.store(y_ptr + at, x - tl.max(x, axis=1)[:, None])"


def refused(constant: str, body: str) -> str | None:
    source = Source(TEXT.format(body=body.replace("\n", "\n    ")))
    _, kernel = TRITON.kernels(source)
    return Flow(TRITON, source, kernel, constant).refusal()


@pytest.mark.parametrize(
    "body",
    [
        PLAIN,
        "tl.store(y_ptr + at, x - tl.max(x, axis=-1)[:, None])",
        "tl.store(y_ptr + at, x - tl.max(x, axis=1, keep_dims=True))",
        "top = tl.max(x, axis=1)\ntl.store(y_ptr + at, x.to(tl.float32) - top[:, None])",
        "tl.store(y_ptr + rows, tl.sum(x, 1))",
        "tl.store(y_ptr + rows, tl.max(tl.where(x > 0, x, -float('inf')), 1))",
    ],
)
def test_rows_are_independent_of_what_is_reduced_in_each(body: str) -> None:
    assert refused("ROWS", body) is None
    assert refused("COLS", body) is not None


@pytest.mark.parametrize(
    "body",
    [
        "tl.store(y_ptr + at, x - tl.max(x, axis=0)[None, :])",
        "tl.store(y_ptr + at, x - tl.max(x)[:, None])",
        "tl.store(y_ptr + at, tl.max(tl.trans(x), axis=1)[None, :])",
        "tl.store(y_ptr + at, helper(tl.max(x, axis=1))[:, None])",
        "tl.store(y_ptr, tl.max(tl.max(x, axis=1), axis=1))",
        "top = tl.max(x, axis=1)\ntl.store(y_ptr, tl.max(top, axis=0))",
        "top = tl.max(x, axis=1)[None, :] + x\ntl.store(y_ptr + rows, tl.sum(top, axis=1))",
        "s = tl.load(x_ptr + rows)\ntl.store(y_ptr, tl.sum(s, axis=1))",
        "acc = tl.zeros((COLS, ROWS), tl.float32)\ntl.store(y_ptr + cols, tl.sum(acc + 1, axis=1))",
        "acc = tl.full((ROWS,), 1.0, tl.float32)\ntl.store(y_ptr, tl.sum(acc, axis=1))",
        "t = tl.load(x_ptr + rows[None, :])\ntl.store(y_ptr + rows, tl.sum(t, axis=1))",
    ],
)
def test_what_is_reduced_over_the_rows_depends_on_them(body: str) -> None:
    assert refused("ROWS", body) is not None
