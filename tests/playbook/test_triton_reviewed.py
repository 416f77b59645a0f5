"""Edits of public kernels that a reviewer would not have merged, and what is written instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.proposers.playbook import edited
from agent.syntax import Source
from tests.support.triton_numbers import disagreement

pytest.importorskip("triton", reason="triton is not installed")

HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n@triton.jit\n"


def subject(text: str) -> Subject:
    return Subject(Source(HEAD + text), KernelClass.MEMORY, Hardware(sm=90))


def first(name: str, text: str) -> str:
    """What the first variant of an entry makes of a file."""
    entry, asked = playbook.get(name), subject(text)
    return edited(entry, asked, entry.variants(asked)[0])


def refusal(name: str, text: str) -> str:
    with pytest.raises(NotApplicable) as refused:
        first(name, text)
    return str(refused.value)


SQUARE = """\
def scale_kernel(x_ptr, s_ptr, y_ptr, M, N, B: tl.constexpr):
    rows = tl.program_id(0) * B + tl.arange(0, B)
    cols = tl.program_id(1) * B + tl.arange(0, B)
    at = rows[:, None] * N + cols[None, :]
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    x = tl.load(x_ptr + at, mask=mask)
    tl.store(y_ptr + at, x * tl.load(s_ptr + tl.program_id(0)), mask=mask)


def scale(x, s, block=128):
    y = torch.empty_like(x)
    grid = triton.cdiv(x.shape[0], block), triton.cdiv(x.shape[1], block)
    scale_kernel[grid](x, s, y, x.shape[0], x.shape[1], B=block)
    return y
"""


def test_a_square_tile_is_no_row() -> None:
    """Of 128 x 128 one warp would have had 512 elements a thread."""
    assert (
        refusal("warps-by-row", SQUARE) == "the tiles of scale_kernel are B by B elements, no rows"
    )


GUARDED = """\
def double_kernel(x_ptr, y_ptr, n, B: tl.constexpr):
    row = tl.program_id(0)
    {guard}
        return
    # the row
    cols = tl.arange(0, B)
    tl.store(y_ptr + row * B + cols, tl.load(x_ptr + row * B + cols) * 2.0)


def double(x):
    y = torch.zeros_like(x)
    double_kernel[(x.shape[0],)](x, y, x.shape[0], B=16)
    return y
"""


@pytest.mark.parametrize(
    ("guard", "inside"),
    [
        ("if row >= n:", []),
        ("if row >= n - 1:", ["        if not row >= n - 1:"]),
        ("if row > n:", ["        if not row > n:"]),
    ],
)
def test_a_guard_that_the_loop_makes_needless_goes(
    guard: str, inside: list[str], tmp_path: Path
) -> None:
    old = GUARDED.format(guard=guard)
    new = first("persistent-programs", old)
    kernel = new[new.index("    for row in") :].splitlines()
    assert [line for line in kernel if line.strip().startswith("if ")] == inside
    assert "# the row" in new
    assert disagreement("double", [[[5, 16]], [[2, 16]]], HEAD + old, [new], False, tmp_path) == ""


def test_a_comment_behind_a_program_id_stays() -> None:
    entry = playbook.get("grouped-programs")
    body = entry.before.removeprefix(entry.before[: entry.before.index("def ")])
    told = body.replace(
        "pid_m = tl.program_id(0)\n", "pid_m = tl.program_id(0)  # an expert each\n", 1
    )
    assert told != body
    assert "  # an expert each\n" in first("grouped-programs", told)


ONE_ROUND = """\
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for block in range(row, {end}):
        cols = block * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + cols, tl.load(x_ptr + cols, mask=cols < n), mask=cols < n)


def copy(x):
    y = torch.empty_like(x)
    copy_kernel[(4,)](x, y, x.numel(), BLOCK=64)
    return y
"""


@pytest.mark.parametrize("name", ["unrolled-loops", "loop-stages"])
def test_a_loop_of_one_round_is_left_alone(name: str) -> None:
    assert "no innermost loop" in refusal(name, ONE_ROUND.format(end="row + 1"))
    assert "range(row, row + 2" in first(name, ONE_ROUND.format(end="row + 2"))


PENALIZED = """\
def softmax_kernel(x_ptr, y_ptr, n, scale, B: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, B)
    score = tl.zeros([B], dtype=tl.float32)
    score += tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
    score *= scale
    score += tl.where(cols < n, 0, {penalty})
    p = tl.exp(score - tl.max(score, 0))
    tl.store(y_ptr + row * n + cols, p / tl.sum(p, 0), mask=cols < n)


def softmax(x):
    y = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, y, x.shape[1], 0.3, B=triton.next_power_of_2(x.shape[1]))
    return y
"""


def test_a_penalty_that_is_added_in_place_passes_a_scale_on(tmp_path: Path) -> None:
    """Attentions mask their scores so, between the scale and the exponential."""
    old = PENALIZED.format(penalty='float("-inf")')
    new = first("folded-exp2", old)
    assert "score *= scale * 1.4426950408889634\n" in new and "tl.exp2(" in new
    assert disagreement("softmax", [[[3, 9]], [[2, 16]]], HEAD + old, [new], True, tmp_path) == ""


def test_one_that_is_none_does_not() -> None:
    assert "score += tl.where" in refusal("folded-exp2", PENALIZED.format(penalty="-1.0"))
