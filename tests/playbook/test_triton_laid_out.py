"""What is written where a line cannot hold it, and what need not be written."""

from __future__ import annotations

import re
from pathlib import Path

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
def copy_kernel(x_ptr, y_ptr, x_rows, x_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    {mask}
    x = tl.load(x_ptr + rows[:, None] * x_cols + cols[None, :], mask=mask)
    tl.store(y_ptr + rows[:, None] * x_cols + cols[None, :], x, mask=mask)


def copy(x):
    y = torch.empty_like(x)
    x_rows, x_cols = x.shape
    grid = (triton.cdiv(x_rows, 16), triton.cdiv(x_cols, 16))
    copy_kernel[grid](x, y, x_rows, x_cols, ROWS=16, COLS=16)
    return y
"""
BROKEN = """\
mask = (
        ((rows[:, None] < x_rows) | EVEN_X_ROWS)
        & ((cols[None, :] < x_cols) | EVEN_X_COLS)
{more}    )
"""


def apply(name: str, text: str) -> str:
    entry = playbook.get(name)
    return entry.apply(Subject(Source(text), KernelClass.MEMORY, Hardware(sm=90)), {})


@pytest.mark.parametrize(
    ("mask", "more"),
    [
        ("mask = (rows[:, None] < x_rows) & (cols[None, :] < x_cols) & (rows[:, None] >= 0)",
         "        & (rows[:, None] >= 0)\n"),
        ("mask = (rows[:, None] < x_rows) & (\n        cols[None, :] < x_cols\n    ) & "
         "(cols[None, :] >= 0)", "        & (cols[None, :] >= 0)\n"),
    ],
)  # fmt: skip
def test_a_mask_that_grows_too_long_has_a_condition_a_line(
    mask: str, more: str, tmp_path: Path
) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    from tests.support.triton_numbers import disagreement

    text = TILES.format(mask=mask)
    new = apply("even-blocks", text)
    assert BROKEN.format(more=more) in new
    assert max(map(len, new.splitlines())) <= 100
    calls = [[[32, 48]], [[33, 47]]]
    assert disagreement("copy", calls, text, [new], rounding=False, folder=tmp_path) == ""


def test_a_mask_that_fits_stays_on_its_line() -> None:
    text = TILES.format(mask="mask = (rows[:, None] < x_rows) & (cols[None, :] < x_cols)")
    text = re.sub(r"x_(rows|cols)", r"\1_", text)
    assert "mask = ((rows[:, None] < rows_) | EVEN_ROWS_) & (" in apply("even-blocks", text)
