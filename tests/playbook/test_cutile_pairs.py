"""Pairs of thread blocks on one tile: what belongs to them, and for which kernels they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable
from agent.launches import ObservedLaunch, ObservedTensor
from tests.support.rewriting import subject


def test_a_pair_of_thread_blocks_is_given_a_tile_of_twice_the_size() -> None:
    text = playbook.get("tile-sizes").before.replace("64, 64, 64", "128, 128, 64")
    pairs = playbook.get("num-ctas")
    tried = list(pairs.variants(subject(text, sm=90)))
    assert tried == [
        {"num_ctas": 2},
        {"num_ctas": 2, "TILE_M": 256, "TILE_N": 128, "TILE_K": 64},
        {"num_ctas": 2, "TILE_M": 128, "TILE_N": 256, "TILE_K": 64},
    ]
    new = pairs.apply(subject(text, sm=90), tried[1])
    assert "@ct.kernel(num_ctas=2)" in new
    assert "= 256, 128, 64 " in new
    with pytest.raises(NotApplicable):
        pairs.variants(subject(new, sm=90))
    persistent = playbook.get("persistent-blocks")
    params = list(persistent.variants(subject(new, sm=90)))
    assert "n_sms // 2)" in persistent.apply(subject(new, sm=90), params[0])
    assert "n_sms // 2 * 2)" in persistent.apply(subject(new, sm=90), params[1])
    at_once = list(persistent.variants(subject(text, sm=90)))[2]
    assert at_once == {"blocks_per_sm": 1, **tried[1]}
    assert persistent.apply(subject(text, sm=90), at_once) == persistent.apply(
        subject(new, sm=90), params[0]
    )


LONG_ROWS = """\
import cuda.tile as ct
import torch

BLOCK = 1024


@ct.kernel
def relu_kernel(x, y, BLOCK: ct.Constant[int]):
    row, columns = ct.bid(0), ct.bid(1) * BLOCK + ct.arange(BLOCK, dtype=ct.int32)
    ct.scatter(y, (row, columns), ct.maximum(ct.gather(x, (row, columns)), 0))


def relu(x):
    y = torch.empty_like(x)
    grid = (x.shape[0], ct.cdiv(x.shape[1], BLOCK))
    ct.launch(torch.cuda.current_stream(), grid, relu_kernel, (x, y, BLOCK))
    return y
"""


def launched_on(columns: int, block: int) -> ObservedLaunch:
    x = ObservedTensor("bfloat16", (100_000, columns), (columns, 1), aligned=True)
    return ObservedLaunch("relu_kernel", "t", (), {"BLOCK": block}, {"x": x, "y": x}, {})


@pytest.mark.parametrize(
    ("columns", "block", "sizes"),
    [
        (14336, 1024, [{"BLOCK": 16384}]),
        (30000, 1024, [{"BLOCK": 32768}]),
        (14336, 16384, [{}, {"BLOCK": 16384}]),  # one launch gives it, and not the file
        (8192, 1024, "no row has 8192 to 32768 elements"),
        (50000, 1024, "no row has 8192 to 32768 elements"),
    ],
)
def test_a_pair_of_thread_blocks_is_given_a_long_row(
    columns: int, block: int, sizes: list[dict[str, int]] | str
) -> None:
    pairs = playbook.get("two-blocks-a-row")
    asked = replace(subject(LONG_ROWS, sm=90), launches=(launched_on(columns, block),))
    assert asked.kernel_class is KernelClass.MEMORY
    if isinstance(sizes, str):
        with pytest.raises(NotApplicable, match=sizes):
            pairs.variants(asked)
        return
    hints = {"num_ctas": 2, "num_worker_warps": 8}
    assert list(pairs.variants(asked)) == [
        {**hints, "occupancy": occupancy, **each} for each in sizes for occupancy in (4, 8)
    ]


def test_what_belongs_to_a_pair_on_a_long_row_is_set_with_it() -> None:
    params = {"num_ctas": 2, "num_worker_warps": 8, "occupancy": 4, "BLOCK": 16384}
    text = LONG_ROWS.replace("@ct.kernel\n", "@ct.kernel(occupancy=4)\n")
    new = playbook.get("two-blocks-a-row").apply(subject(text, sm=90), params)
    assert "@ct.kernel(occupancy=4, num_ctas=2, num_worker_warps=8)" in new
    assert "BLOCK = 16384\n" in new
    with pytest.raises(NotApplicable, match="num_ctas is 2 already"):
        playbook.get("two-blocks-a-row").variants(subject(new, sm=90))


def test_arithmetic_that_would_spill_becomes_approximate_with_it() -> None:
    """Only where it is not so already."""
    pairs = playbook.get("two-blocks-a-row")
    asked = subject(pairs.before, sm=90)
    found = list(pairs.variants(asked))
    assert [params["occupancy"] for params in found] == [4, 8] * 2  # as it is, and of 16384
    assert all(params["rounding"] == "APPROX" for params in found)
    fast = playbook.get("fast-math").apply(asked, {"rounding": "APPROX"})
    assert not any("rounding" in params for params in pairs.variants(subject(fast, sm=90)))


@pytest.mark.parametrize(
    ("text", "sm", "why"),
    [
        (LONG_ROWS, 120, "sm_120 has no pairs of thread blocks"),
        (playbook.get("tile-sizes").before, 90, "memory does not bound it|multiplies tiles"),
    ],
)
def test_pairs_on_rows_are_not_for_others(text: str, sm: int, why: str) -> None:
    with pytest.raises(NotApplicable, match=why):
        playbook.get("two-blocks-a-row").variants(subject(text, sm=sm))
    with pytest.raises(NotApplicable, match=r"no launched kernel multiplies tiles|sm_120"):
        playbook.get("num-ctas").variants(subject(LONG_ROWS, sm=sm))
