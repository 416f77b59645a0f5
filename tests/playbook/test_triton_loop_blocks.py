"""loop-blocks: blocks of a product's loop that launches are given, and those that have to stay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent import playbook
from agent.analysis.common.subject import NotApplicable, Params
from agent.launches import ObservedLaunch
from agent.proposers.playbook import edited as laid_out
from agent.syntax import Source
from tests.support.causal_kernel import PREFIX
from tests.support.rewriting import subject

ENTRY = playbook.get("loop-blocks")
SHAPES = [[[n, 16], [n, 16]] for n in (2, 40, 77)]
SIZES = "    block_m = 32\n    grid = (triton.cdiv(n, block_m),)\n"
LAUNCH = (
    "    prefix_kernel[grid](q, k, out, n, BLOCK_M=block_m, BLOCK_N=16, DIM=dim)\n    return out\n"
)
HALF: Params = {"block": "BLOCK_N", "factor": 0.5}
WARPS: Params = {**HALF, "num_warps": 8, "num_stages": 2}


def launched(sizes: str, given: str, *, after: str = "    return out\n") -> str:
    """The causal product, its host written so that no integer of it can be another."""
    assert SIZES in PREFIX and LAUNCH in PREFIX
    launch = f"    prefix_kernel[grid](q, k, out, n, {given}, DIM=dim)\n{after}"
    return PREFIX.replace(SIZES, sizes).replace(LAUNCH, launch)


ONE = "    block = 32\n    grid = (triton.cdiv(n, block),)\n"
KEPT = "    out.grid, out.block = grid, block\n    return out\n"
BOTH = "BLOCK_M=block, BLOCK_N=block"


def blocks(text: str) -> list[object]:
    return [params["factor"] for params in ENTRY.variants(subject(text, sm=90))]


def changed(text: str, params: Params = HALF) -> str:
    return laid_out(ENTRY, subject(text, sm=90), params)


def refusal(text: str) -> str:
    with pytest.raises(NotApplicable) as refused:
        ENTRY.variants(subject(text, sm=90))
    return str(refused.value)


def test_a_block_that_sizes_the_grid_as_well_which_is_kept() -> None:
    text = launched(ONE, BOTH, after=KEPT)
    launch = (
        "        q, k, out, n, BLOCK_M=block, BLOCK_N=max(block // 2, min(block, 32)), DIM=dim\n"
    )
    line = "prefix_kernel[grid](q, k, out, n, BLOCK_M=block, BLOCK_N=block, DIM=dim)\n"
    assert changed(text) == text.replace(line, f"prefix_kernel[grid](\n{launch}    )\n")
    assert set(blocks(text)) == {0.5, 0.25}  # its loop ends at a block of rows


@pytest.mark.parametrize(
    ("sizes", "given", "half"),
    [
        (
            "    block = 64 if n > 64 else 32\n    grid = (triton.cdiv(n, block),)\n",
            BOTH,
            "BLOCK_N=max(block // 2, min(block, 32))",
        ),
        (
            f'    sizes = {{"rows": 32, "columns": 32}}\n{SIZES}',
            'BLOCK_M=block_m, BLOCK_N=sizes["columns"]',
            'BLOCK_N=max(sizes["columns"] // 2, min(sizes["columns"], 32))',
        ),
        (
            SIZES,
            "BLOCK_M=block_m, BLOCK_N=64 if n > 64 else 32",
            "BLOCK_N=max((64 if n > 64 else 32) // 2, min((64 if n > 64 else 32), 32))",
        ),
    ],
)
def test_what_a_launch_gives_may_be_anything(sizes: str, given: str, half: str) -> None:
    text = launched(sizes, given)
    assert half in changed(text)


def test_a_block_that_a_caller_chooses() -> None:
    text = launched(SIZES, "BLOCK_M=block_m, BLOCK_N=columns")
    text = text.replace("def prefix(q, k):", "def prefix(q, k, columns):")
    assert "BLOCK_N=max(columns // 2, min(columns, 32))" in changed(text)


def test_warps_and_stages_come_with_it() -> None:
    text = " ".join(changed(launched(ONE, BOTH, after=KEPT), WARPS).split())
    assert "BLOCK_N=max(block // 2, min(block, 32)), DIM=dim, num_warps=8, num_stages=2" in text


def test_it_is_chosen_anew_from_what_it_was_at_first() -> None:
    text = launched(ONE, BOTH, after=KEPT)
    half = changed(text)
    assert HALF not in ENTRY.variants(subject(half, sm=90))
    quarter = {**HALF, "factor": 0.25}
    assert changed(half, quarter) == changed(text, quarter)


def test_a_block_as_small_as_a_products_may_be_gets_no_smaller() -> None:
    text = launched(ONE, BOTH, after=KEPT)
    launches = tuple(
        ObservedLaunch("prefix_kernel", "test", (1, 1, 1), {"BLOCK_M": n, "BLOCK_N": n}, {}, {})
        for n in (64, 128)
    )
    seen = ENTRY.variants(replace(subject(text, sm=90), launches=launches))
    assert {params["factor"] for params in seen} == {0.5}


@pytest.mark.parametrize("params", [HALF, WARPS])
def test_results_are_the_same(params: Params, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    from tests.support.triton_numbers import disagreement

    text = launched(ONE, BOTH, after=KEPT)
    new = changed(text, params)
    assert disagreement("prefix", SHAPES, text, [new], rounding=True, folder=tmp_path) == ""


DOT = "        scores = tl.dot(q, tl.trans(k))\n"
END = "(pid_m + 1) * BLOCK_M"
OUTSIDE = "takes a block of it outside of a loop over them"
BY_ITSELF = "does not go over an axis by it alone"
DIAGONAL = """\
    cols = pid_m * BLOCK_M + tl.arange(0, BLOCK_N)
    k = tl.load(k_ptr + cols[:, None] * DIM + dims[None, :])
    acc += tl.dot(tl.dot(q, tl.trans(k)), k)
"""


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        # How far it goes is counted in blocks, by the kernel or by whoever launches it.
        (END, "(pid_m + 1) * BLOCK_N", "no loop of the kernel goes over its blocks"),
        (END, "DIM * BLOCK_N", BY_ITSELF),
        (END, "tl.num_programs(0) * BLOCK_N", ""),
        ("range(0,", "range(BLOCK_N,", ""),
        (", BLOCK_N):", ", 2 * BLOCK_N):", ""),
        # Something belongs to each block.
        (DOT, f"{DOT}        scores *= tl.load(k_ptr + start // BLOCK_N)\n", "drops a remainder"),
        (DOT, f"{DOT}        acc += 1.0\n", "counts rounds"),
        (DOT, f"{DOT}        tl.atomic_add(out_ptr, 1.0)\n", "does once a round"),
        (DOT, f"{DOT}        scores *= tl.rand(7 + start, rows)[:, None]\n", ""),
        ("k_ptr + cols[:, None] * DIM", "k_ptr + cols[:, None] * BLOCK_N", "computes with it"),
        # Something asks which block it is, or what one holds.
        ("        scores = tl.where", "        if start == pid_m * BLOCK_M:\n            scores = "
         "tl.where", "asks for it"),
        ("cols[None, :] <= rows[:, None]", "start <= rows[:, None]", "compares which round it is"),
        ("cols[None, :] <= rows", "(cols[None, :] == start) | (cols[None, :] <= rows)", ""),
        (DOT, f"{DOT}        if tl.sum(tl.sum(scores, 1), 0) > 0:\n            acc *= 2\n", ""),
        ("    pid_m = tl", "    tl.static_assert(BLOCK_M == BLOCK_N)\n    pid_m = tl",
         "asks for it"),
        # One block is read after the loop, or in a loop over others.
        ("    out_ptrs = out_ptr", f"{DIAGONAL}    out_ptrs = out_ptr", OUTSIDE),
        (", BLOCK_N):", ", BLOCK_M):", "no loop of the kernel goes over its blocks"),
    ],
)  # fmt: skip
def test_a_block_that_is_more_than_a_step_stays(old: str, new: str, reason: str) -> None:
    text = launched(ONE, BOTH, after=KEPT)
    assert old in text
    assert reason in refusal(text.replace(old, new))


@pytest.mark.parametrize(
    ("sizes", "given", "reason"),
    [
        ("    block = 64 if n > 64 else 32\n    grid = lambda meta: (triton.cdiv(n, "
         'meta["BLOCK_N"]),)\n', BOTH, "the grid at line 32 reads it, or may do so"),
        ("    block = 64 if n > 64 else 32\n    grid = lambda meta: (triton.cdiv(n, "
         'meta.get("BLOCK_M")),)\n', BOTH, "the grid at line 32 reads it, or may do so"),
        (SIZES, "BLOCK_M=block_m, BLOCK_N=(columns := 64)", "gives is more than an expression"),
        (SIZES, "BLOCK_M=block_m, BLOCK_N=sizes.pop()", "gives is more than an expression"),
        ("    block = 64 if n > 64 else 32\n    grid = (triton.cdiv(n, block),)\n"
         "    q = q * (n // block)\n", BOTH, "uses `block` for more than tiles and grid"),
    ],
)  # fmt: skip
def test_a_launch_that_makes_more_of_it_stays(sizes: str, given: str, reason: str) -> None:
    assert reason in refusal(launched(sizes, given))


def test_a_grid_may_read_other_sizes() -> None:
    sizes = (
        "    block = 64 if n > 64 else 32\n"
        '    grid = lambda meta: (triton.cdiv(n, meta["BLOCK_M"]),)\n'
    )
    assert blocks(launched(sizes, BOTH))


@pytest.mark.parametrize("given", ["max(16, block // 2, 16)", "4 * 16 if n > 64 else 32"])
def test_what_an_author_wrote_is_taken_as_a_whole(given: str) -> None:
    text = changed(launched(ONE, f"BLOCK_M=block, BLOCK_N={given}", after=KEPT))
    whole = given if given.startswith("max") else f"({given})"
    assert f"BLOCK_N=max({whole} // 2, min({whole}, 32))" in " ".join(text.split())


def test_what_the_host_makes_of_it_elsewhere_is_no_matter() -> None:
    text = launched(
        f"{ONE}    parts = triton.cdiv(n, block)\n    kept = torch.empty(parts)\n", BOTH
    )
    assert "BLOCK_N=max(block // 2, min(block, 32))" in changed(text)


def test_integers_that_can_be_others_where_they_are_made_are_left_to_blocks_and_warps() -> None:
    assert "BLOCK_N of prefix_kernel: blocks-and-warps sets it where it is made" in refusal(PREFIX)


def test_a_block_that_goes_with_warps_and_stages_is_not_scaled_alone() -> None:
    text = launched(f"    columns = settings(n)\n{SIZES}", "BLOCK_M=block_m, BLOCK_N=columns")
    with pytest.raises(NotApplicable, match="BLOCK_N of prefix_kernel: loop-blocks chooses it"):
        playbook.get("scaled-blocks").variants(subject(text, sm=90))


def test_a_kernel_without_a_product_has_none() -> None:
    text = playbook.get("scaled-blocks").before
    assert refusal(text) == "square_kernel does not multiply tiles"
    assert Source(text).text == text
