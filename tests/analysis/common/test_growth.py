"""Which padding a loop's last tile may have: what reductions and products take in of it."""

from __future__ import annotations

import pytest

from agent.analysis.common.constant_flow import Flow
from agent.analysis.common.dialect import Dialect
from agent.analysis.common.growth import may_grow, padding_that_counts
from agent.analysis.cutile.dialect import CUTILE
from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source

ROWS = """\
import math

import cuda.tile as ct

LEAST = -1e30


def shifted(tile, by):
    return tile - by


@ct.kernel
def kernel(x, y, n: int, mean: float, T: ct.Constant[int]):
    row = ct.bid(0)
    s = ct.zeros((1, 1), dtype=ct.float32)
    acc = ct.zeros((1, T), dtype=ct.float32)
    top = ct.full((1, T), -math.inf, dtype=ct.float32)
    for j in range(ct.num_tiles(x, axis=1, shape=(1, T))):
        at = j * T + ct.arange(T, dtype=ct.int32)
        inside = at < n
        t = ct.load(x, (row, j), (1, T), padding_mode=ct.PaddingMode.ZERO)
        low = ct.gather(x, (row, at), padding_value=-math.inf)
        high = ct.load(x, (row, j), (1, T), padding_mode=ct.PaddingMode.POS_INF)
        LINES
    ct.store(y, (row, 0), s + ct.sum(acc, axis=1, keepdims=True) + ct.max(top))
"""
POINTERS = """\
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, mean, T: tl.constexpr):
    s = 0.0
    top = -float("inf")
    for start in range(0, n, T):
        at = start + tl.arange(0, T)
        t = tl.load(x_ptr + at, mask=at < n, other=0.0)
        low = tl.load(x_ptr + at, mask=at < n, other=-float("inf"))
        LINES
    tl.store(y_ptr, s + top)
"""
ATTENTION = """\
import math

import cuda.tile as ct


@ct.kernel
def kernel(q, k, v, o, keys: int, EVEN: ct.Constant[bool], D: ct.Constant[int],
           M: ct.Constant[int], N: ct.Constant[int]):
    i = ct.bid(0)
    rows = i * M + ct.arange(M, dtype=ct.int32)[:, None]
    top = ct.full((M, 1), -math.inf, dtype=ct.float32)
    total = ct.zeros((M, 1), dtype=ct.float32)
    acc = ct.zeros((M, D), dtype=ct.float32)
    qt = ct.load(q, (i, 0), (M, D), padding_mode=ct.PaddingMode.ZERO)
    for j in range(ct.cdiv(keys, N)):
        kt = ct.load(k, (0, j), (D, N), padding_mode=ct.PaddingMode.ZERO)
        s = ct.mma(qt, kt, ct.zeros((M, N), dtype=ct.float32))
        at = j * N + ct.arange(N, dtype=ct.int32)[None, :]
        LINES
        new = ct.maximum(top, ct.max(s, axis=1, keepdims=True))
        p = ct.exp(s - new)
        alpha = ct.exp(top - new)
        total = total * alpha + ct.sum(p, axis=1, keepdims=True)
        vt = ct.load(v, (j, 0), (N, D), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(p.astype(v.dtype), vt, acc * alpha)
        top = new
    ct.store(o, (i, 0), (acc / total).astype(o.dtype))
"""


def counted(dialect: Dialect, text: str, lines: str, size: str = "T") -> str | None:
    """What of the kernel counts the padding, as code."""
    source = Source(text.replace("LINES", lines.replace("\n", "\n        ")))
    (kernel,) = dialect.kernels(source)
    flow = Flow(dialect, source, kernel, size)
    node = padding_that_counts(flow)
    assert may_grow(flow) is (node is None)
    return None if node is None else source.code(node)


@pytest.mark.parametrize(
    "lines",
    [
        "s += ct.sum(t, axis=1, keepdims=True)",
        "s += ct.sum(t * t / n, axis=1, keepdims=True)",
        "s += ct.sum(ct.abs(t) - 2.0 * t, axis=1, keepdims=True)",
        "s += ct.sum(ct.maximum(t, 0.0), axis=1, keepdims=True)",
        "s += ct.sum(ct.where(t > 0, t, 0.5 * t), axis=1, keepdims=True)",
        "s += ct.sum(ct.where(inside, (t - mean) * (t - mean), 0.0), axis=1, keepdims=True)",
        "s += ct.sum(ct.where(at >= n, 0.0, ct.exp(t)), axis=1, keepdims=True)",
        "s += ct.sum(ct.exp(t) * inside, axis=1, keepdims=True)",
        "s += ct.sum(ct.exp(ct.where(inside, t, LEAST) - mean), axis=1, keepdims=True)",
        "s += ct.sum(ct.exp(low - mean), axis=1, keepdims=True)",
        "s += ct.sum(t * ct.exp(t), axis=1, keepdims=True)",
        "s = ct.maximum(s, ct.max(low, axis=1, keepdims=True))",
        "s = ct.minimum(s, ct.min(high, axis=1, keepdims=True))",
        "s = ct.maximum(s, ct.max(ct.abs(t), axis=1, keepdims=True))",
        "acc += t\ntop = ct.maximum(top, low)",
        "new = ct.maximum(top, low)\nacc = acc * ct.exp(top - new) + ct.exp(low - new)\ntop = new",
        "ct.store(y, (row, j), ct.exp(t))",
        "ct.scatter(y, (row, at), ct.exp(t))",
        "ct.atomic_add(y, (ct.astype(t, ct.int32),), t)",
    ],
)
def test_padding_that_stays_nothing_may_grow(lines: str) -> None:
    assert counted(CUTILE, ROWS, lines) is None


@pytest.mark.parametrize(
    ("lines", "where"),
    [
        ("s += ct.sum(ct.exp(t), axis=1, keepdims=True)", "ct.sum"),
        ("s += ct.sum(shifted(t, mean), axis=1, keepdims=True)", "ct.sum"),
        ("s += ct.sum((t - mean) * (t - mean), axis=1, keepdims=True)", "ct.sum"),
        ("s += ct.sum(ct.where(t <= 0, 1, 0), axis=1, keepdims=True)", "ct.sum"),
        ("s += ct.sum(low, axis=1, keepdims=True)", "ct.sum"),
        ("s = ct.maximum(s, ct.max(t, axis=1, keepdims=True))", "ct.max"),
        ("s = ct.minimum(s, ct.min(t, axis=1, keepdims=True))", "ct.min"),
        ("s = s * ct.prod(t, axis=1, keepdims=True)", "ct.prod"),
        ("acc += t - mean", "ct.sum(acc"),
        ("acc += 1.0 - ct.exp(-t) * 0.5", "ct.sum(acc"),
        ("top = ct.maximum(top, t)", "ct.max(top"),
        ("ct.atomic_add(y, (ct.astype(t, ct.int32),), 1)", "ct.atomic_add"),
    ],
)
def test_padding_that_counts_may_not(lines: str, where: str) -> None:
    found = counted(CUTILE, ROWS, lines)
    assert found is not None and found.startswith(where)


@pytest.mark.parametrize(
    ("lines", "grows"),
    [
        ("s = s * 0.5", False),
        ("s = ct.where(at < keys, s, -math.inf)", True),
        ("s += ct.where(at < keys, 0.0, -1e9)", True),
        ("if not EVEN:\n    s = ct.where(at < keys, s, -math.inf)", True),
        ("if j > keys // N - 1:\n    s += ct.where(at < keys, 0.0, -math.inf)", True),
        ("s = ct.where(rows >= at, s, -math.inf)", True),
        ("if EVEN:\n    s = ct.where(rows >= at, s, -math.inf)", False),
    ],
)
def test_keys_are_masked_by_their_number(lines: str, grows: bool) -> None:
    """A causal mask hides keys past the end, too, but only where it is set."""
    assert (counted(CUTILE, ATTENTION, lines, "N") is None) is grows


def test_a_product_takes_in_nothing_where_one_side_is_zero() -> None:
    masked = "s = ct.where(at < keys, s, -math.inf)"
    shifted = ATTENTION.replace("ct.mma(p.", "ct.mma((p + 1).")
    assert counted(CUTILE, shifted, masked, "N") is None
    both = shifted.replace(
        "        acc = ct.mma(", "        vt = ct.exp(vt)\n        acc = ct.mma("
    )
    assert str(counted(CUTILE, both, masked, "N")).startswith("ct.mma((p + 1)")


@pytest.mark.parametrize(
    ("lines", "grows"),
    [
        ("s += tl.sum(t * t, 0)", True),
        ("s += tl.sum(tl.exp(low - mean), 0)", True),
        ("top = tl.maximum(top, tl.max(low, 0))", True),
        ("s += tl.sum(tl.where(at < n, (t - mean) * (t - mean), 0.0), 0)", True),
        ("s += tl.sum((t - mean) * (t - mean), 0)", False),
        ("s += tl.sum(tl.exp(t), 0)", False),
    ],
)
def test_the_same_holds_of_masked_loads(lines: str, grows: bool) -> None:
    assert (counted(TRITON, POINTERS, lines) is None) is grows


@pytest.mark.parametrize(
    ("lines", "grows"),
    [
        ("by = ct.load(y, (j * T // 64,), (1,))\ns += ct.sum(t * by)", False),
        ("first = j * T\nby = ct.gather(y, (row, first // 64))\ns += ct.sum(t * by)", False),
        ("by = ct.gather(y, (row, at // 64))\ns += ct.sum(t * by)", True),
        ("by = ct.gather(y, (row, (j * T + ct.arange(T)) // 64))\ns += ct.sum(t * by)", True),
    ],
)
def test_one_scale_for_a_tile_is_of_no_larger_one(lines: str, grows: bool) -> None:
    source = Source(ROWS.replace("LINES", lines.replace("\n", "\n        ")))
    (kernel,) = CUTILE.kernels(source)
    assert may_grow(Flow(CUTILE, source, kernel, "T")) is grows


@pytest.mark.parametrize(
    ("columns", "mask", "grows"),
    [
        ("at", "(rows[:, None] < m) & (at[None, :] < n)", True),
        ("at", "(at[None, :] < n) | EVEN", True),
        ("at", "inside", True),
        ("at", "within(at, n)[None, :]", True),
        ("at % n", "rows[:, None] < m", True),
        ("at", "rows[:, None] < m", False),
        ("at", "given", False),
        ("at", "tl.load(z_ptr + at, mask=at < n)[None, :] > 0", False),
        ("at", "tl.arange(0, N)[None, :] < N", False),
        ("at", "at[None, :] < tl.program_id(1) * N + N", False),
        ("at", "rows[:, None] >= at[None, :]", False),
    ],
)
def test_a_mask_bounds_the_axis_of_the_numbers_that_it_compares(
    columns: str, mask: str, grows: bool
) -> None:
    source = Source(f"""\
import triton
import triton.language as tl


@triton.jit
def within(index, length):
    return index < length


@triton.jit
def kernel(x_ptr, y_ptr, z_ptr, m, n, given, EVEN: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    at = tl.program_id(1) * N + tl.arange(0, N)
    columns = {columns}
    both = (rows[:, None] < m) & (at[None, :] < n)
    inside = both if not EVEN else None
    t = tl.load(x_ptr + rows[:, None] * n + columns[None, :], mask={mask}, other=0.0)
    tl.store(y_ptr + rows[:, None] * n + at[None, :], t, mask=both)
""")
    kernel = next(k for k in TRITON.kernels(source) if k.name == "kernel")
    assert may_grow(Flow(TRITON, source, kernel, "N")) is grows


@pytest.mark.parametrize(
    ("checked", "grows"), [("(0, 1)", True), ("(1,)", True), ("(0,)", False), ("[0]", False)]
)
def test_a_block_pointer_bounds_the_axes_that_it_is_told_to_check(
    checked: str, grows: bool
) -> None:
    source = Source(f"""\
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, m, n, M: tl.constexpr, N: tl.constexpr):
    first = (tl.program_id(0) * M, tl.program_id(1) * N)
    x = tl.make_block_ptr(x_ptr, (m, n), (n, 1), first, (M, N), (1, 0))
    y = tl.make_block_ptr(y_ptr, (m, n), (n, 1), first, (M, N), (1, 0))
    tl.store(y, tl.load(x, boundary_check={checked}), boundary_check=(0, 1))
""")
    (kernel,) = TRITON.kernels(source)
    assert may_grow(Flow(TRITON, source, kernel, "N")) is grows
