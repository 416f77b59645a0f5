"""Results of Triton kernels that depend on which elements form a block."""

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
def kernel(x_ptr, y_ptr, w_ptr, n, seed, BLOCK: tl.constexpr, SUB: tl.constexpr):
    pid = tl.program_id(0)
    idx = tl.arange(0, BLOCK)
    offs = pid * BLOCK + idx
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    LINES
    tl.store(y_ptr + offs, x, mask=offs < n)
"""


def reason(lines: str) -> str | None:
    """Why BLOCK may not be another one."""
    source = Source(KERNEL.replace("LINES", lines.replace("\n", "\n    ")))
    (kernel,) = TRITON.kernels(source)
    return needed_size(Flow(TRITON, source, kernel, "BLOCK"))


@pytest.mark.parametrize(
    "lines", ["x = tl.flip(x, 0)", "x = tl.gather(x, tl.load(w_ptr + offs), 0)"]
)
def test_elements_that_change_places_within_a_block_need_its_size(lines: str) -> None:
    assert "moves elements within each block" in (reason(lines) or "")


@pytest.mark.parametrize(
    ("lines", "needs"),
    [
        ("x -= tl.load(x_ptr + offs - 1, mask=(offs < n) & (idx > 0), other=0.0)", True),
        ("x = tl.where(idx == 0, 0.0, x)", True),
        ("x = tl.where(idx == BLOCK - 1, 0.0, x)", True),
        ("x *= tl.load(w_ptr + idx)", True),
        ("x *= tl.load(w_ptr + (offs & (BLOCK - 1)))", True),
        ("x *= tl.load(w_ptr + offs % BLOCK)", True),
        ("part = BLOCK // 2\nx *= tl.load(w_ptr + pid * part + tl.arange(0, BLOCK // 2))", False),
        ("x *= tl.load(w_ptr + pid * BLOCK + idx, mask=idx < n - pid * BLOCK)", False),
        ("w_ptr += pid * BLOCK\nx *= tl.load(w_ptr + idx)", False),
        ("x = tl.where(offs == 0, 0.0, x)", False),
        ("x *= tl.load(w_ptr + offs % n)", False),
        ("if n <= BLOCK:\n    x *= tl.load(w_ptr + idx, mask=idx < n)", False),
        ("x = tl.where(tl.rand(seed + pid, idx) > 0.5, x, 0.0)", True),
        ("x = tl.where(tl.rand(seed + pid, offs) > 0.5, x, 0.0)", True),
        ("x = tl.where(tl.rand(seed, offs) > 0.5, x, 0.0)", False),
        ("x /= tl.num_programs(0)", True),
        ("programs = tl.num_programs(0)\nx /= programs", True),
        ("x /= tl.num_programs(1)", False),
        ("tl.atomic_add(w_ptr, 1)", True),
        ("tl.atomic_add(w_ptr + x.to(tl.int32), 1, mask=offs < n)", False),
        ("last = tl.atomic_add(w_ptr, 1) == tl.num_programs(0) - 1", False),
    ],
)
def test_what_begins_again_with_each_block_needs_its_size(lines: str, needs: bool) -> None:
    assert (reason(lines) is not None) is needs


@pytest.mark.parametrize(
    ("bounds", "needs"),
    [
        ("range(0, BLOCK, SUB)", True),
        ("range(0, BLOCK // 2, SUB)", True),
        ("range(0, n, BLOCK)", False),
    ],
)
def test_what_a_loop_within_a_block_adds_up_is_of_that_block(bounds: str, needs: bool) -> None:
    total = "total += tl.sum(tl.load(x_ptr + pid * BLOCK + i + tl.arange(0, SUB)))"
    found = reason(f"total = 0.0\nfor i in {bounds}:\n    {total}\nx /= total")
    assert ("puts the parts of one block together" in (found or "")) is needs


def test_an_axis_that_one_block_holds_has_places_only() -> None:
    whole = KERNEL.replace("pid * BLOCK", "pid * n").replace("LINES", "x *= tl.load(w_ptr + idx)")
    source = Source(whole)
    (kernel,) = TRITON.kernels(source)
    assert needed_size(Flow(TRITON, source, kernel, "BLOCK")) is None


@pytest.mark.parametrize(
    ("lines", "needs"),
    [
        ("s = tl.dot(q, tl.trans(k))", True),
        ("s = tl.dot(q, k.T) * 0.5", True),
        ("s = tl.dot(wide, q)", True),
        ("s = tl.dot(q, w)", False),
        ("s = tl.dot(q, tl.trans(other))", False),
        ("for j in range(0, n, BLOCK):\n    s += tl.dot(q, tl.trans(k))", False),
        ("tl.atomic_add(w_ptr + w_at, tl.dot(tl.trans(q), k))", False),
    ],
)
def test_a_product_over_one_block_needs_its_size(lines: str, needs: bool) -> None:
    before = """\
d = tl.arange(0, SUB)
w_at = d[:, None] * SUB + d[None, :]
w = tl.load(w_ptr + w_at)
wide = tl.load(w_ptr + d[:, None] * n + offs[None, :])
s = 0.0
at = offs[:, None] * SUB + d[None, :]
q = tl.load(x_ptr + at, mask=offs[:, None] < n, other=0.0)
k = tl.load(y_ptr + at, mask=offs[:, None] < n, other=0.0)
columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
other = tl.load(w_ptr + columns[:, None] * SUB + d[None, :], mask=columns[:, None] < n, other=0.0)
"""
    found = reason(before + lines)
    assert (found is not None and "multiplies what one block holds" in found) is needs
