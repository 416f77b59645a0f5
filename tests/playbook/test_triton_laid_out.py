"""What is written where a line cannot hold it, and what need not be written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, Subject
from agent.syntax import Source
from tests.playbook.test_triton_traps import agree

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


TABLE = """\
@triton.heuristics({
    "WIDE": lambda args: args["n"] > 1024,  # as a flag
    "HAS_BIAS": lambda args: False
})
"""


@pytest.mark.parametrize("closed", [",", ""])
def test_a_table_of_several_lines_gets_a_line(closed: str, tmp_path: Path) -> None:
    """In place of a decorator above the other; comments stay where they are."""
    before = playbook.get("even-blocks").before
    table = TABLE.replace("False\n", f"False{closed}\n")
    flags = "BLOCK: tl.constexpr, WIDE: tl.constexpr, HAS_BIAS: tl.constexpr)"
    old = before.replace("@triton.jit\n", f"{table}@triton.jit\n")
    old = old.replace("BLOCK: tl.constexpr)", flags)
    new = apply("even-blocks", old)
    even = '    "EVEN_N": lambda args: args["n"] % args["BLOCK"] == 0,\n})\n'
    assert TABLE.replace("False\n})\n", f"False,\n{even}") in new
    assert new.count("@triton.heuristics") == 1
    agree("scale", [[[2000]], [[2048]]], old, new, tmp_path)


def test_a_table_of_one_line_stays_one() -> None:
    before = playbook.get("even-blocks").before
    table = '@triton.heuristics({"WIDE": lambda args: args["n"] > 1024})\n'
    old = before.replace("@triton.jit\n", f"{table}@triton.jit\n")
    new = apply("even-blocks", old.replace("tl.constexpr)", "tl.constexpr, WIDE: tl.constexpr)"))
    assert table in new
    assert new.count("@triton.heuristics") == 2
