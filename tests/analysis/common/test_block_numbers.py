"""Numbers of cuTile's tiles that stand for something of the tile's size."""

from __future__ import annotations

import pytest

from agent.analysis.common.constant_flow import Flow
from agent.analysis.common.needed_sizes import needed_size
from agent.analysis.cutile.dialect import CUTILE
from agent.syntax import Source

KERNEL = """\
import cuda.tile as ct


@ct.kernel
def kernel(x, y, seen, first: int, M: ct.Constant[int], N: ct.Constant[int]):
    i = ct.bid(0)
    for j in range(ct.num_tiles(x, axis=1, shape=(M, N))):
        tile = ct.load(x, (i, j), (M, N))
        ct.store(y, (i, j), tile)
"""
FLAG = "ct.full((1, 1), 1, dtype=ct.int32)"


def reasons(text: str) -> list[str | None]:
    """Why M and N may not be other ones."""
    source = Source(text)
    (kernel,) = CUTILE.kernels(source)
    return [needed_size(Flow(CUTILE, source, kernel, name)) for name in ("M", "N")]


@pytest.mark.parametrize(
    ("index", "stored", "counted"),
    [
        ("(i, j)", FLAG, (True, True)),
        ("(i, 0)", FLAG, (True, False)),
        ("(ct.bid(1), j)", FLAG, (False, True)),
        ("(j * N,)", "1", (False, False)),
        ("(i, j)", "tile * 2", (False, False)),
        ("(i, j)", "ct.reshape(ct.astype(tile, y.dtype), (M, N))", (False, False)),
    ],
)
def test_a_store_of_what_has_no_such_elements_counts_tiles(
    index: str, stored: str, counted: tuple[bool, bool]
) -> None:
    found = reasons(f"{KERNEL}        ct.store(seen, {index}, {stored})\n")
    assert tuple(reason is not None for reason in found) == counted
    assert all("counts its blocks" in reason for reason in found if reason is not None)


def test_the_number_that_a_block_is_asked_for_in_place_is_one_too() -> None:
    text = KERNEL.replace("(i, j)", "(ct.bid(0), j)")
    assert reasons(text) == [None, None]
    assert reasons(f"{text}    ct.store(seen, (ct.bid(0),), ct.full((1,), 1.0))\n")[0] is not None


@pytest.mark.parametrize(
    ("old", "new", "counted"),
    [
        ("range(ct", "range(first, ct", (False, True)),
        ("range(ct", "range(first + ct.bid(1), ct", (False, True)),
        ("range(ct", "range(ct.cdiv(first, N), ct", (False, False)),
        ("ct.bid(0)", "ct.bid(0) - first", (False, False)),
        ("range(ct", "range(1, ct", (False, False)),
        ("range(ct", "range(ct.bid(1), ct", (False, False)),
        ("ct.load(x, (i,", "ct.load(x, (i + first,", (True, False)),
        ("ct.load(x, (i, j)", "ct.load(x, (i, first + j)", (False, True)),
        ("ct.load(x, (i,", "ct.load(x, (i + ct.cdiv(first, M),", (False, False)),
    ],
)
def test_a_launch_that_says_which_tile_comes_first_counts_them(
    old: str, new: str, counted: tuple[bool, bool]
) -> None:
    assert old in KERNEL
    found = reasons(KERNEL.replace(old, new))
    assert tuple(reason is not None for reason in found) == counted


def test_as_many_steps_at_once_as_the_grid_has_begin_at_a_given_one_too() -> None:
    text = KERNEL.replace("i = ct.bid(0)", "i = 0").replace("range(", "range(first + ct.bid(0), ")
    text = text.replace("(M, N)):\n", "(M, N)), ct.num_blocks(0)):\n")
    assert reasons(text)[1] is not None
    assert reasons(text.replace("first + ", ""))[1] is None
