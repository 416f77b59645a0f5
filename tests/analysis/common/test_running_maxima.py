"""Blocks of a softmax in one pass: which sizes may leave a row with minus infinity alone."""

from __future__ import annotations

import pytest

from agent.analysis.common.constant_flow import Flow
from agent.analysis.common.running_maxima import begins_otherwise, may_shrink
from agent.analysis.cutile.dialect import CUTILE
from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source

ATTENTION = """\
import triton
import triton.language as tl


@triton.jit
def kernel(q_ptr, k_ptr, y_ptr, n, window, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    first = tl.program_id(0) * BLOCK_M
    rows = first + tl.arange(0, BLOCK_M)
    places = tl.arange(0, 64)
    q = tl.load(q_ptr + rows[:, None] * 64 + places[None, :], mask=rows[:, None] < n, other=0.0)
    m = BEGUN
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(FIRST, n, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + cols[None, :] * 64 + places[:, None], mask=cols[None, :] < n, other=0.0)
        s = tl.dot(q, k)
        SCORES
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        total = total * tl.exp(m - new) + tl.sum(p, 1)
        m = new
    tl.store(y_ptr + rows, m + tl.log(total), mask=rows < n)
"""
INF = 'float("-inf")'
BEGUN = f"tl.full((BLOCK_M,), {INF}, dtype=tl.float32)"
LATE = "tl.maximum(0, first - window)"
LENGTH = f"s = tl.where(cols[None, :] < n, s, {INF})"
CAUSAL = f"s = tl.where((rows[:, None] >= cols[None, :]) & (cols[None, :] < n), s, {INF})"
NEAR = f"near = rows[:, None] - cols[None, :] <= window\ns = tl.where(near, s, {INF})"


def text(scores: str, first: str, begun: str) -> str:
    lines = scores.replace("\n", "\n        ")
    return ATTENTION.replace("SCORES", lines).replace("FIRST", first).replace("BEGUN", begun)


def flow(source: str, constant: str) -> Flow:
    read = Source(source)
    dialect = CUTILE if "cuda.tile" in source else TRITON
    (kernel,) = (k for k in dialect.kernels(read) if k.name == "kernel")
    return Flow(dialect, read, kernel, constant)


@pytest.mark.parametrize(
    ("scores", "first", "begun", "columns", "rows"),
    [
        (LENGTH, "0", BEGUN, True, True),
        (CAUSAL, "0", BEGUN, True, True),
        (CAUSAL.replace("rows[:, None] >= cols[None, :]", "cols[None, :] <= rows[:, None]"),
         "0", BEGUN, True, True),
        (f"s = tl.where(cols[None, :] > rows[:, None], {INF}, s)", "0", BEGUN, True, True),
        (f"s = tl.where(~(cols[None, :] > rows[:, None]), s, {INF})", "0", BEGUN, True, True),
        (CAUSAL, LATE, BEGUN, True, True),
        (NEAR, "0", BEGUN, False, True),
        (NEAR, LATE, BEGUN, False, False),
        (NEAR, LATE, "tl.full((BLOCK_M,), -1e30, dtype=tl.float32)", True, True),
        (NEAR, LATE, f"tl.zeros((BLOCK_M,), dtype=tl.float32) + {INF}", False, False),
        (f"s = tl.where(cols[None, :] > rows[:, None] - window, s, {INF})", LATE, BEGUN, False,
         False),
        (f"near = rows[:, None] - cols[None, :] <= window\nnear = near | (cols[None, :] < n)\n"
         f"s = tl.where(near, s, {INF})", "0", BEGUN, False, True),
        (f"s = tl.where((rows[:, None] <= cols[None, :] + window) | (cols[None, :] < n), s, {INF})",
         "0", BEGUN, True, True),
        (f"kept = tl.load(y_ptr + cols)\ns = tl.where(kept[None, :] > 0, s, {INF})", "0", BEGUN,
         False, True),
        ("s += tl.load(y_ptr + cols)[None, :]", "0", BEGUN, False, True),
        (f"s = tl.where(rows[:, None] < n, s, {INF})", "0", BEGUN, True, True),
        (NEAR.replace(INF, "-1e6"), LATE, BEGUN, True, True),
    ],
)  # fmt: skip
def test_an_attention(scores: str, first: str, begun: str, *, columns: bool, rows: bool) -> None:
    written = text(scores, first, begun)
    assert may_shrink(flow(written, "BLOCK_N")) is columns
    assert may_shrink(flow(written, "BLOCK_M"))
    assert (begins_otherwise(flow(written, "BLOCK_M")) is None) is rows
    assert begins_otherwise(flow(written, "BLOCK_N")) is None


def test_a_test_for_minus_infinity_is_enough() -> None:
    written = text(NEAR, LATE, BEGUN)
    tested = written.replace(
        "        p =", f"        new = tl.where(new == {INF}, 0.0, new)\n        p ="
    )
    assert may_shrink(flow(tested, "BLOCK_N"))
    assert begins_otherwise(flow(tested, "BLOCK_M")) is None


HELPED = """\
import triton
import triton.language as tl


@triton.jit
def inner(q, k_ptr, m, total, rows, n, STEP: tl.constexpr):
    for start in range(0, n, STEP):
        cols = start + tl.arange(0, STEP)
        s = tl.dot(q, tl.load(k_ptr + cols[None, :] + tl.arange(0, 64)[:, None]))
        s = tl.where(rows[:, None] - cols[None, :] < 8, s, float("-inf"))
        new = tl.maximum(m, tl.max(s, 1))
        total = total * tl.math.exp2(m - new) + tl.sum(tl.math.exp2(s - new[:, None]), 1)
        m = new
    return m, total


@triton.jit
def kernel(q_ptr, k_ptr, y_ptr, n, BLOCK_N: tl.constexpr):
    rows = tl.program_id(0) * 64 + tl.arange(0, 64)
    q = tl.load(q_ptr + rows[:, None] * 64 + tl.arange(0, 64)[None, :])
    m = tl.full((64,), float("-inf"), tl.float32)
    m, total = inner(q, k_ptr, m, tl.zeros((64,), tl.float32), rows, n, BLOCK_N)
    tl.store(y_ptr + rows, m + tl.log(total))
"""
LOGITS = """\
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    m = float("-inf")
    s = 0.0
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n, other=float("-inf"))
        new = max(m, tl.max(x, 0))
        s = s * tl.exp(m - new) + tl.sum(tl.exp(x - new), 0)
        m = new
    tl.store(y_ptr, m + tl.log(s))
"""
TILES = """\
import cuda.tile as ct


@ct.kernel
def kernel(x, y, BLOCK: ct.Constant[int]):
    m = ct.full((1, 1), -float("inf"), dtype=ct.float32)
    s = ct.full((1, 1), 0.0, dtype=ct.float32)
    for j in range(ct.num_tiles(x, axis=1, shape=(1, BLOCK))):
        t = ct.load(x, index=(0, j), shape=(1, BLOCK), padding_mode=ct.PaddingMode.NEG_INF)
        new = ct.maximum(m, ct.max(t, axis=1, keepdims=True))
        s = s * ct.exp(m - new) + ct.sum(ct.exp(t - new), axis=1, keepdims=True)
        m = new
    ct.store(y, index=(0, 0), tile=m + ct.log(s))
"""


@pytest.mark.parametrize(
    ("written", "constant"), [(HELPED, "BLOCK_N"), (LOGITS, "BLOCK"), (TILES, "BLOCK")]
)
def test_helpers_data_and_tiles(written: str, constant: str) -> None:
    assert not may_shrink(flow(written, constant))


def test_maxima_alone_are_right_with_any_block() -> None:
    assert may_shrink(
        flow(LOGITS.replace("tl.exp(x - new)", "x").replace("tl.exp(m - new)", "m"), "BLOCK")
    )


STEPS = "for start in range(FIRST, n, BLOCK_N):\n        cols = start + tl.arange(0, BLOCK_N)\n"
BY_NUMBER = (
    "for block in range(0, tl.cdiv(n, BLOCK_N)):\n"
    "        cols = block * BLOCK_N + tl.arange(0, BLOCK_N)\n"
)
FROM_THE_END = (
    "for start in range(n - BLOCK_N, -1, -BLOCK_N):\n        cols = start + tl.arange(0, BLOCK_N)\n"
)
HELPER = "@triton.jit\ndef near(s, rows, cols):\n    return s\n\n\n@triton.jit\ndef kernel("
STEP = """\
@triton.jit
def step(s, m):
    new = tl.maximum(m, tl.max(s, 1))
    return new, tl.exp(m - new)


@triton.jit
def kernel("""
UPDATES = "new = tl.maximum(m, tl.max(s, 1))"
NAMED = f"NEG = tl.constexpr({INF})\n\n\n@triton.jit\ndef kernel("


@pytest.mark.parametrize(
    "edits",
    [
        [(STEPS, BY_NUMBER)],
        [("range(FIRST, n, BLOCK_N)", "tl.range(0, n, step=BLOCK_N)")],
        [(INF, "NEG"), ("@triton.jit\ndef kernel(", NAMED)],
        [(INF, f"tl.full((BLOCK_M, BLOCK_N), {INF}, tl.float32)")],
        [
            ("@triton.jit\ndef kernel(", HELPER),
            ("near = rows", "s = near(s, rows, cols)\nnear = rows"),
        ],
        [(UPDATES, "new, alpha = step(s, m)"), ("@triton.jit\ndef kernel(", STEP)],
        [("rows[:, None] - cols[None, :] <=", "tl.abs(cols[None, :] - rows[:, None]) <=")],
        [("total * tl.exp(m - new)", f"total * tl.where(m == {INF}, 0.0, tl.exp(m - new))")],
    ],
)
def test_an_attention_to_what_is_near_in_other_words(edits: list[tuple[str, str]]) -> None:
    scores, template = NEAR, ATTENTION
    for old, new in edits:
        assert old in template + scores
        template, scores = template.replace(old, new), scores.replace(old, new)
    lines = scores.replace("\n", "\n        ")
    written = template.replace("SCORES", lines).replace("FIRST", "0").replace("BEGUN", BEGUN)
    assert not may_shrink(flow(written, "BLOCK_N"))


def test_causal_keys_from_the_end_begin_with_those_that_are_masked() -> None:
    written = text(CAUSAL, "0", BEGUN)
    assert may_shrink(flow(written, "BLOCK_N"))
    reversed_ = ATTENTION.replace(STEPS, FROM_THE_END).replace("SCORES", CAUSAL)
    assert not may_shrink(flow(reversed_.replace("BEGUN", BEGUN), "BLOCK_N"))


def test_rows_and_steps_of_one_constant_belong_together() -> None:
    written = text(NEAR, "first // BLOCK_N * BLOCK_N", BEGUN).replace("BLOCK_M", "BLOCK_N")
    assert begins_otherwise(flow(written, "BLOCK_N")) is not None


@pytest.mark.parametrize(
    "lines",
    [
        "kept = cols[None, :] < n\nif window > 0:\n"
        "    kept = kept & (rows[:, None] >= cols[None, :])",
        "kept = cols[None, :] < n\nkept &= rows[:, None] >= cols[None, :]",
        "kept = (cols[None, :] < n) * (rows[:, None] // 8 >= cols[None, :] // 8)",
    ],
)
def test_masks_that_are_put_together_keep_the_first(lines: str) -> None:
    scores = f"{lines}\ns = tl.where(kept, s, {INF})"
    assert may_shrink(flow(text(scores, "0", BEGUN), "BLOCK_N"))


ACTIVATED = """\
import triton
import triton.language as tl


@triton.jit
def softplus(x):
    return tl.maximum(x, 0.0) + tl.log(1 + tl.exp(-tl.abs(x)))


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(y_ptr + at, softplus(tl.load(x_ptr + at, mask=at < n)), mask=at < n)
"""


def test_a_maximum_of_two_numbers_is_no_running_one() -> None:
    assert may_shrink(flow(ACTIVATED, "BLOCK"))
