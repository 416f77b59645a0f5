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
DOUBLE: Params = {"block": "BLOCK_N", "factor": 2}
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
    assert changed(text) == text.replace("BLOCK_N=block", "BLOCK_N=max(block // 2, 16)")
    assert set(blocks(text)) == {0.5, 0.25}  # its loop ends at a block of rows


@pytest.mark.parametrize(
    ("sizes", "given", "half"),
    [
        (
            "    block = 64 if n > 64 else 32\n    grid = (triton.cdiv(n, block),)\n",
            BOTH,
            "BLOCK_N=max(block // 2, 16)",
        ),
        (
            f'    sizes = {{"rows": 32, "columns": 32}}\n{SIZES}',
            'BLOCK_M=block_m, BLOCK_N=sizes["columns"]',
            'BLOCK_N=max(sizes["columns"] // 2, 16)',
        ),
        (
            SIZES,
            "BLOCK_M=block_m, BLOCK_N=32 if n > 64 else 16",
            "BLOCK_N=max((32 if n > 64 else 16) // 2, 16)",
        ),
    ],
)
def test_what_a_launch_gives_may_be_anything(sizes: str, given: str, half: str) -> None:
    text = launched(sizes, given)
    assert half in changed(text)


def test_a_block_that_a_caller_chooses() -> None:
    text = launched(SIZES, "BLOCK_M=block_m, BLOCK_N=columns")
    text = text.replace("def prefix(q, k):", "def prefix(q, k, columns):")
    assert "BLOCK_N=max(columns // 2, 16)" in changed(text)


def test_warps_and_stages_come_with_it() -> None:
    text = launched(ONE, BOTH, after=KEPT)
    given = "BLOCK_N=max(block // 2, 16), DIM=dim, num_warps=8, num_stages=2)"
    assert given in changed(text, WARPS).replace("\n        ", " ").replace("( ", "(").replace(
        ",\n    )", ")"
    )


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
        for n in (32, 64)
    )
    seen = ENTRY.variants(replace(subject(text, sm=90), launches=launches))
    assert {params["factor"] for params in seen} == {0.5}


def test_a_loop_over_all_of_an_axis_may_take_larger_blocks() -> None:
    whole = launched(ONE, BOTH, after=KEPT).replace("(pid_m + 1) * BLOCK_M", "n")
    assert 2 in blocks(whole)
    assert "BLOCK_N=2 * block" in changed(whole, DOUBLE)


@pytest.mark.parametrize("params", [HALF, WARPS, DOUBLE])
def test_results_are_the_same(params: Params, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    from tests.support.triton_numbers import disagreement

    text = launched(ONE, BOTH, after=KEPT)
    if params is DOUBLE:
        text = text.replace("(pid_m + 1) * BLOCK_M", "n")
    new = changed(text, params)
    assert disagreement("prefix", SHAPES, text, [new], rounding=True, folder=tmp_path) == ""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        # What a program does is counted in the loop's own blocks.
        (("(pid_m + 1) * BLOCK_M", "(pid_m + 1) * BLOCK_N"), "neither the grid nor a loop"),
        # A scale for each block of the loop: the counter is its place.
        (
            (
                "        acc +=",
                "        scores *= tl.load(k_ptr + start // BLOCK_N)\n        acc +=",
            ),
            "of prefix_kernel",
        ),
        # What the host makes of it is handed to the kernel.
        (
            (
                "    grid =",
                "    table = torch.zeros(n // block)\n    q = q + table.sum()\n    grid =",
            ),
            "uses `block` for more than tiles and grid",
        ),
    ],
)
def test_a_block_that_is_more_than_a_tile_stays(change: tuple[str, str], reason: str) -> None:
    text = launched(ONE, BOTH, after=KEPT)
    assert change[0] in text
    assert reason in refusal(text.replace(*change))


def test_what_the_host_makes_of_it_elsewhere_is_no_matter() -> None:
    text = launched(
        f"{ONE}    parts = triton.cdiv(n, block)\n    kept = torch.empty(parts)\n", BOTH
    )
    assert "BLOCK_N=max(block // 2, 16)" in changed(text)


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
