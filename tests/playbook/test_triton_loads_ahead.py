"""What the loads of persistent programs take of shared memory, whatever their dimensions."""

from __future__ import annotations

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, Subject
from agent.syntax import Source

TILES = """\
import torch
import triton
import triton.language as tl


@triton.jit
def places(rows, cols, stride):
    return rows[:, None] * stride + cols[None, :]


@triton.jit
def scale_kernel(x_ptr, s_ptr, y_ptr, n, m, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    at = {at}
    mask = (rows[:, None] < n) & (cols[None, :] < m)
    x = tl.load(x_ptr + at{mask})
    s = tl.load(s_ptr + tl.program_id(0) * tl.cdiv(m, COLS) + tl.program_id(1))
    tl.store(y_ptr + at, x * s, mask=mask)


def scale(x, s, size=128):
    y = torch.empty_like(x)
    n, m = x.shape
    grid = (triton.cdiv(n, size), triton.cdiv(m, size))
    scale_kernel[grid](x, s, y, n, m, ROWS=size, COLS=size)
    return y
"""
SQUARE = TILES.replace("ROWS: tl.constexpr, COLS: tl", "B: tl").replace("ROWS=size, COLS", "B")
SQUARE = SQUARE.replace("ROWS", "B").replace("COLS", "B")
ROW_BY_COL = "rows[:, None] * m + cols[None, :]"


def subject(text: str) -> Subject:
    return Subject(Source(text), KernelClass.MEMORY, Hardware(sm=90))


@pytest.mark.parametrize(("text", "count"), [(SQUARE, "B * B"), (TILES, "ROWS * COLS")])
def test_tiles_of_two_dimensions_are_counted_in_full(text: str, count: str) -> None:
    """A load of one element, as of `s_ptr`, waits in a register."""
    entry = playbook.get("persistent-programs")
    text = text.format(at=ROW_BY_COL, mask=", mask=mask")
    changed = entry.apply(subject(text), {"programs_per_sm": 8, "num_stages": 2})
    written = (
        f"x_ptr_bytes: tl.constexpr = {count} * x_ptr.dtype.element_ty.primitive_bitwidth // 8"
    )
    assert written in changed
    assert "num_stages: tl.constexpr = 2 if x_ptr_bytes <= 224256 else 1" in changed


def test_tiles_that_are_not_followed_are_not_loaded_ahead() -> None:
    text = SQUARE.format(at="places(rows, cols, m)", mask="")
    entry = playbook.get("persistent-programs")
    assert all("num_stages" not in params for params in entry.variants(subject(text)))
    changed = entry.apply(subject(text), {"programs_per_sm": 8, "num_stages": 2})
    assert "num_stages" not in changed


def test_a_load_on_either_side_of_a_choice_is_one() -> None:
    """One of the two is under way, whatever is chosen, so that there is an array."""
    text = SQUARE.format(at=ROW_BY_COL, mask=", mask=mask").replace(
        "    x = tl.load(x_ptr + at, mask=mask)\n",
        """\
    if n % B == 0:
        x = tl.load(x_ptr + at)
    else:
        x = tl.load(x_ptr + at, mask=mask)
    x += tl.load(x_ptr + at, mask=mask & (at > 0))
""",
    )
    entry = playbook.get("persistent-programs")
    changed = entry.apply(subject(text), {"programs_per_sm": 8, "num_stages": 2})
    assert "x_ptr_bytes: tl.constexpr = B * B * x_ptr" in changed
    assert "num_stages: tl.constexpr = 2 if 2 * x_ptr_bytes <= 224256 else 1" in changed
