"""Block sizes and rows are chosen by what tests were seen to launch."""

from __future__ import annotations

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.tile_extents import bounding
from agent.launches import ObservedLaunch
from agent.syntax import Source

ROWS = """\
import torch
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, y_ptr, n, limit, BLOCK: tl.constexpr):
    row = tl.program_id(1) * n
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < n
    x = tl.load(x_ptr + row + cols, mask=inside)
    tl.store(y_ptr + row + cols, tl.where(x < limit, x, 0.0), mask=inside)


def run(x):
    y = torch.empty_like(x)
    grid = lambda meta: (triton.cdiv(x.shape[1], meta["BLOCK"]), x.shape[0])
    k[grid](x, y, x.shape[1], 3, BLOCK=256)
    return y
"""


def seen(kernel: str, **integers: int) -> ObservedLaunch:
    return ObservedLaunch(kernel, "t", (), integers, {}, {})


def asked(text: str, *launches: ObservedLaunch) -> Subject:
    return Subject(Source(text), KernelClass.MEMORY, Hardware(sm=90), launches)


@pytest.mark.parametrize(
    ("launches", "sizes"),
    [
        ([], [128, 512, 1024]),
        ([seen("k", n=700), seen("k", n=20)], [128, 512, 1024]),
        ([seen("k", n=512)], [128, 512]),
        ([seen("k", n=100)], [128]),
        ([seen("other", n=100)], [128, 512, 1024]),
        ([seen("k", limit=3)], [128, 512, 1024]),
    ],
)
def test_no_block_is_longer_than_the_longest_row(
    launches: list[ObservedLaunch], sizes: list[int]
) -> None:
    found = playbook.get("block-size").variants(asked(ROWS, *launches))
    assert [params["BLOCK"] for params in found] == sizes


def test_a_length_may_be_a_constant() -> None:
    """As where each length is compiled for; a block of the kernel is no length."""
    text = ROWS.replace("y_ptr, n, limit, BLOCK", "y_ptr, n: tl.constexpr, limit, BLOCK")
    found = playbook.get("block-size").variants(asked(text, seen("k", n=100)))
    assert [params["BLOCK"] for params in found] == [128]
    (kernel,) = TRITON.kernels(Source(text))
    assert bounding(Source(text), kernel, "BLOCK") == {"n"}


def test_where_every_block_is_too_long_the_present_one_stays() -> None:
    with pytest.raises(NotApplicable, match="longer than what tests launch"):
        playbook.get("block-size").variants(asked(ROWS, seen("k", n=16)))


MATMUL = playbook.get("grouped-programs").before.replace(
    "(triton.cdiv(M, 64), triton.cdiv(N, 64))",
    'lambda meta: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]))',
)


def test_each_tile_of_a_product_has_a_size_of_its_own() -> None:
    source = Source(MATMUL)
    (kernel,) = TRITON.launched(source)
    bounds = {name: bounding(source, kernel, name) for name in kernel.constants}
    assert bounds == {
        "BLOCK_M": frozenset({"M"}),
        "BLOCK_N": frozenset({"N"}),
        "BLOCK_K": frozenset({"K"}),
    }


def test_a_product_with_few_rows_is_given_low_tiles() -> None:
    entry = playbook.get("blocks-and-warps")
    every = entry.variants(asked(MATMUL))
    low = entry.variants(asked(MATMUL, seen(TRITON.launched(Source(MATMUL))[0].name, M=50)))
    assert {params["BLOCK_M"] for params in low} == {64}
    assert {params["BLOCK_M"] for params in every} > {64}


@pytest.mark.parametrize(
    ("blocks", "elements"),
    [
        ((), {1024, 2048, 4096, 8192}),
        ((1024, 4096), {2048, 4096, 8192}),
        ((4096,), {8192}),
    ],
)
def test_rows_share_a_program_where_they_fit(blocks: tuple[int, ...], elements: set[int]) -> None:
    entry = playbook.get("rows-per-program")
    launches = [seen("resize_kernel", BLOCK=block) for block in blocks]
    found = entry.variants(asked(entry.before, *launches))
    assert {params["elements"] for params in found} == elements


def test_rows_that_fill_a_program_share_none() -> None:
    entry = playbook.get("rows-per-program")
    with pytest.raises(NotApplicable, match="fills a program: 8192 elements"):
        entry.variants(asked(entry.before, seen("resize_kernel", BLOCK=8192)))


@pytest.mark.parametrize("name", ["loop-stages", "unrolled-loops"])
@pytest.mark.parametrize(
    ("launches", "tried"),
    [
        ([], True),
        ([{"n_cols": 768, "BLOCK": 16384}], False),
        ([{"n_cols": 768, "BLOCK": 1024}, {"n_cols": 1024, "BLOCK": 1024}], False),
        ([{"n_cols": 768, "BLOCK": 1024}, {"n_cols": 1025, "BLOCK": 1024}], True),
        ([{"n_cols": 768}], True),
    ],
)
def test_a_loop_that_ran_once_is_neither_pipelined_nor_unrolled(
    name: str, launches: list[dict[str, int]], *, tried: bool
) -> None:
    entry = playbook.get(name)
    kernel = TRITON.launched(Source(entry.before))[0].name
    subject = asked(entry.before, *(seen(kernel, **integers) for integers in launches))
    if tried:
        assert entry.variants(subject)
        return
    with pytest.raises(NotApplicable, match=f"the loops of {kernel} ran once at most"):
        entry.variants(subject)


@pytest.mark.parametrize(
    ("ranged", "tried"),
    [
        ("range(tl.cdiv(n_cols, BLOCK))", False),
        ("range(0, (n_cols + BLOCK - 1) // BLOCK * BLOCK, BLOCK)", False),
        ("range(row, n_cols, BLOCK)", True),
        ("range(0, 2 * n_cols, BLOCK)", True),
    ],
)
def test_rounds_are_counted_as_far_as_launches_tell(ranged: str, *, tried: bool) -> None:
    entry = playbook.get("loop-stages")
    text = entry.before.replace("range(0, n_cols, BLOCK)", ranged)
    subject = asked(text, seen("row_sum_kernel", n_cols=900, BLOCK=1024))
    try:
        assert entry.variants(subject)
        assert tried
    except NotApplicable:
        assert not tried
