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
    assert "lays it along the dimension of COLS: they are equal, or one is 1" in refusal_of(
        text, "ROWS"
    )
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


SCORES = (
    HEAD
    + """\
@triton.jit
def score_kernel(q_ptr, k_ptr, out_ptr, n, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr,
                 MASKED: tl.constexpr):
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    dims = tl.arange(0, D)
    k = tl.load(k_ptr + cols[None, :] * D + dims[:, None])
    total = tl.zeros([{total}], dtype=tl.float32)
    for start in range(0, n, BM):
        rows = start + tl.arange(0, BM)
        q = tl.load(q_ptr + rows[:, None] * D + dims[None, :], mask=rows[:, None] < n, other=0.0)
        p = tl.zeros([BM, BN], dtype=tl.float32)
        p += tl.dot(q, k)
        p = tl.exp(p)
        if MASKED:
            p = tl.where(rows[:, None] < n, p, 0.0)
        total += {of}
    tl.store(out_ptr + {to}, total)


def score(q, k):
    out = torch.empty(k.shape[0], device=q.device)
    grid = (triton.cdiv(k.shape[0], 64),)
    score_kernel[grid](q, k, out, q.shape[0], BM=64, BN=64, D=64, MASKED=True)
    return out
"""
)


def test_a_sum_over_the_other_dimension_needs_equal_sizes() -> None:
    """As in MInference's scores, where both are 64: the sum has a number for each column."""
    text = SCORES.format(total="BM", of="tl.sum(p, axis=0)", to="cols")
    assert "lays it along the dimension of BN: they are equal" in refusal_of(text, "BM")
    assert "lays it along the dimension of BM: they are equal" in refusal_of(text, "BN")


@pytest.mark.parametrize(
    ("total", "of", "to"),
    [
        ("BN", "tl.sum(p, axis=0)", "cols"),
        ("BN", "tl.sum(p, 0)", "cols"),
        ("1, BN", "tl.sum(p, 0)[None, :]", "cols[None, :]"),
        ("BN", "tl.sum(tl.sum(p[None, :, :], axis=0), axis=0)", "cols"),
    ],
)
def test_a_sum_over_its_own_dimension_does_not(total: str, of: str, to: str) -> None:
    text = SCORES.format(total=total, of=of, to=to)
    assert "lays it along" not in refusal_of(text, "BM") + refusal_of(text, "BN")


def test_the_inner_dimensions_of_a_product_are_equal() -> None:
    text = SCORES.format(total="BN", of="tl.sum(p, axis=0)", to="cols")
    other = text.replace("dims[None, :], mask", "tl.arange(0, BN)[None, :], mask")
    assert "lays it along the dimension of D: they are equal" in refusal_of(other, "BN")


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
