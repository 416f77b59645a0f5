"""Block sizes that a kernel holds for as 1 only, and tuners that restore what is not there."""

from __future__ import annotations

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.provenance import tile_of
from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source

HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n"
ROWS = (
    HEAD
    + """\
@triton.jit
def pick_kernel(x_ptr, at_ptr, y_ptr, n, m, stride, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    mask = (rows[:, None] < n) & (cols[None, :] < m)
    picked = tl.load(at_ptr + rows, mask=rows < n)
    x = tl.load(x_ptr + {picked} * stride + cols[None, :], mask=mask)
    tl.store(y_ptr + rows[:, None] * stride + cols[None, :], x, mask=mask)


def pick(x, at):
    y = torch.empty(at.numel(), x.shape[1], device=x.device)
    n, m = y.shape
    grid = lambda meta: (triton.cdiv(n, meta["ROWS"]), triton.cdiv(m, meta["COLS"]))
    pick_kernel[grid](x, at, y, n, m, m, ROWS={rows}, COLS=128)
    return y
"""
)


def refusal_of(text: str, constant: str) -> str:
    source = Source(text)
    try:
        tile_of(TRITON, source, TRITON.kernels(source)[0], constant)
    except NotApplicable as reason:
        return str(reason)
    return ""


def test_a_size_that_only_works_as_one_is_kept() -> None:
    text = ROWS.format(picked="picked", rows=1)
    assert "lays it along the dimension of COLS: one has to be 1" in refusal_of(text, "ROWS")
    assert refusal_of(text, "COLS") == ""
    entry = playbook.get("block-size")
    subject = Subject(Source(text), KernelClass.MEMORY, Hardware())
    assert all("ROWS" not in params for params in entry.variants(subject))


def test_a_size_that_is_laid_along_its_own_dimension_is_free() -> None:
    text = ROWS.format(picked="picked[:, None]", rows=1)
    assert refusal_of(text, "ROWS") == refusal_of(text, "COLS") == ""


def test_two_sizes_that_have_to_agree_are_kept() -> None:
    text = ROWS.format(picked="picked", rows=128)
    assert "of COLS" in refusal_of(text, "ROWS")
    assert "of ROWS" in refusal_of(text, "COLS")


ADDED = (
    HEAD
    + """\
@triton.jit
def add_kernel(x_ptr, y_ptr, n, HAS: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    if HAS:
        y = tl.load(y_ptr + offsets, mask=offsets < n)
        tl.store(y_ptr + offsets, x + y, mask=offsets < n)


def add(x, {taken}):
    {first}
    n = x.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
    add_kernel[grid](x, y, n, True, BLOCK=1024)
    return y
"""
)


@pytest.mark.parametrize(
    ("taken", "first", "absent"),
    [
        ("y: torch.Tensor | None", "pass", True),
        ("y=None", "pass", True),
        ("y", "has = y is not None", True),
        ("z", "y = z if z.numel() else None", True),
        ("y", "pass", False),
        ("y=None", "if y is None:\n        y = torch.zeros_like(x)", False),
        ("y=None", "assert y is not None", False),
    ],
)
def test_no_tuner_restores_what_may_be_none(taken: str, first: str, absent: bool) -> None:
    subject = Subject(
        Source(ADDED.format(taken=taken, first=first)), KernelClass.MEMORY, Hardware()
    )
    entry = playbook.get("add-autotune")
    if absent:
        with pytest.raises(NotApplicable, match="may give None for y_ptr, which not every tuner"):
            entry.variants(subject)
    else:
        assert 'restore_value=["y_ptr"]' in entry.apply(subject, {})
