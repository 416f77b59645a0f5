"""Rows that several loops read tile by tile, held in one tile instead."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from agent.environment import probe

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

from agent import playbook  # noqa: E402
from tests.playbook.test_cutile_compiles import compiled, load  # noqa: E402
from tests.support.rewriting import refusal, subject  # noqa: E402
from tests.support.tiers import others_full  # noqa: E402
from tests.support.tile_cpu import result_of  # noqa: E402

ENTRY = "row-in-one-tile"
THREE_PASSES = """\
import cuda.tile as tile
import torch

ZERO = tile.PaddingMode.ZERO


@tile.kernel(occupancy=8)
def k(x, w, y, means, T: tile.Constant[int]):
    \"\"\"Normalizes rows.\"\"\"
    row = tile.bid(0)
    n = x.shape[1]
    steps = tile.num_tiles(x, axis=1, shape=(1, T))
    total = tile.zeros((1, T), dtype=tile.float32)
    for j in range(steps):
        # the first pass
        part = tile.load(x, index=(row, j), shape=(1, T), padding_mode=ZERO)
        total += part
    mean = tile.sum(total, axis=1) / n
    tile.store(means, index=(row,), tile=mean)
    squares = tile.zeros((1, T), dtype=tile.float32)
    for i in range(steps):
        part = tile.load(x, index=(row, i), shape=(1, T), padding_mode=ZERO)
        inside = (i * T + tile.arange(T, dtype=tile.int32)) < n
        squares += tile.where(inside, (part - mean) * (part - mean), 0.0)
    scale = 1.0 / tile.sqrt(tile.sum(squares, axis=1) / n + 1e-5)
    for j in range(steps):
        part = tile.load(x, index=(row, j), shape=(1, T), padding_mode=ZERO)
        weight = tile.load(w, index=(j,), shape=(T,), padding_mode=ZERO)
        tile.store(y, index=(row, j), tile=(part - mean) * scale * weight)


def run(x, w):
    y, means = torch.empty_like(x), torch.empty(x.shape[0])
    # one block a row
    tile.launch(torch.cuda.current_stream(), (x.shape[0],), k, (x, w, y, means, 64))
    return y
"""
COLUMNS = (8192, 8193, 100, 1)
"""The longest row that one tile holds, one more, the usual, the shortest."""


def test_a_block_may_be_called_as_the_function_that_numbers_it() -> None:
    """`bid = ct.bid(0)`, as most kernels have it: the name is computed from no name of its own."""
    named = re.sub(r"\brow\b", "bid", THREE_PASSES)
    entry = playbook.get(ENTRY)
    assert entry.variants(subject(named)) == entry.variants(subject(THREE_PASSES))


@pytest.mark.parametrize("columns", others_full(COLUMNS, 3))
def test_numbers_are_kept_on_both_sides_of_the_longest_row(columns: int, tmp_path: Path) -> None:
    entry = playbook.get(ENTRY)
    given = torch.randn(3, columns), torch.randn(columns)
    expected = result_of(THREE_PASSES, "run", given, tmp_path)
    text = entry.apply(subject(THREE_PASSES), {"occupancy": 0})
    torch.testing.assert_close(result_of(text, "run", given, tmp_path), expected)


def test_a_row_is_loaded_once_and_everything_else_stays() -> None:
    entry = playbook.get(ENTRY)
    text = entry.apply(subject(THREE_PASSES), {"occupancy": 2})
    copy = text[text.index("@tile.kernel(occupancy=2)\ndef k_whole(") : text.index("def k(")]
    assert copy.count("tile.load(x, index=(row, 0)") == 1
    assert "for " not in copy and "steps" not in copy
    assert "(0 * T + tile.arange" in copy and "# the first pass" in copy
    assert text[text.index("@tile.kernel(occupancy=8)\ndef k(") :].startswith(
        THREE_PASSES[THREE_PASSES.index("@tile.kernel") : THREE_PASSES.index("    # one block")]
    )
    assert "    # one block a row\n    if x.shape[1] <= 8192:\n" in text
    assert "k_whole, (x, w, y, means, row_tile))" in text
    assert [*entry.variants(subject(THREE_PASSES))] == [{"occupancy": n} for n in (0, 2, 4)]


IN_PLACE = ("(x, w, y, means, 64)", "(x, w, x, means, 64)")


@pytest.mark.parametrize(
    ("edits", "why"),
    [
        ([IN_PLACE], "may write what is loaded again"),
        ([("store(means, index=(row,)", "store(x, index=(row,)")], "may write what is loaded"),
        (
            [
                ("    squares =", "    row = row + 1\\n    squares ="),
                ("    scale =", "    row = row + 1\\n    scale ="),
            ],
            "no two passes of k load the same tile",
        ),
        (  # a row for each block, and other rows with other blocks
            [("        total += part", "        total += part\\n        row = row + 1")],
            "line 16 counts its blocks",
        ),
        ([("(x.shape[0],), k", "(x.shape[0] // size,), k"), ("64))", "size))")], "the grid of the"),
        ([("(1, T), padding_mode=ZERO", "(1, T)")], "without padding"),
        (
            [("tile.where(inside, (part - mean) * (part - mean), 0.0)", "tile.exp(part - mean)")],
            "line 25 counts what pads the last tile, so T cannot grow",
        ),
        ([("(j,), shape=(T,)", "(j,), shape=(1,)")], "counts its blocks"),
        ([("        total += part", "        if j > 3:\\n            break")], "no plain pass"),
        ([("range(steps)", "range(1, steps)")], "no plain pass from the beginning"),
        ([("shape=(1, T))", "shape=(1, 64))")], "steps through a row by a constant"),
        ([("k, (x, w", "k, (x.t(), w")], "does not give `x` by a name"),
        ([("k, (x, w", "k.replace_hints(occupancy=2), (x, w")], "hints of its own"),
        ([("    tile.launch", "    z = tile.launch")], "part of a larger statement"),
    ],
)
def test_what_does_not_qualify_says_why(edits: list[tuple[str, str]], why: str) -> None:
    text = THREE_PASSES
    for old, new in edits:
        assert old in text
        text = text.replace(old, new.replace("\\n", "\n"))
    assert why in refusal(ENTRY, text)


GATHERS = """\
import cuda.tile as ct
import torch


@ct.kernel
def k(x, y, N: ct.Constant[int], T: ct.Constant[int]):
    row = ct.bid(0)
    total = ct.zeros((T,), dtype=ct.float32)
    for off in range(0, N, T):
        cols = off + ct.arange(T, dtype=ct.int32)
        a = ct.gather(x, (row, cols), padding_value=0.0)
        a = a * a
        total = total + a
    norm = ct.sqrt(ct.sum(total, axis=0))
    for off in range(0, N, T):
        cols = off + ct.arange(T, dtype=ct.int32)
        ct.scatter(y, (row, cols), ct.gather(x, (row, cols), padding_value=0.0) / norm)


def run(x):
    y, n = torch.empty_like(x), x.shape[1]
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), k, (x, y, n, min(64, n)))
    return y
"""
CHUNKS = GATHERS.replace("in range(0, N, T)", "in range((N + T - 1) // T)").replace(
    "= off + ct", "= off * T + ct"
)


@pytest.mark.parametrize(
    "text", [GATHERS, CHUNKS, CHUNKS.replace("(N + T - 1) // T", "ct.cdiv(N, T)")]
)
@pytest.mark.parametrize("columns", others_full([100, 64, 9000]))
def test_gathered_rows_that_a_number_measures(text: str, columns: int, tmp_path: Path) -> None:
    """As TileGym's normalizations are written, in which names are used anew."""
    new = playbook.get(ENTRY).apply(subject(text), {"occupancy": 0})
    assert "    if n <= 8192:\n        row_tile = 1 << (max(n, 16) - 1).bit_length()\n" in new
    assert new[: new.index("def k(")].count("ct.gather(") == 1
    given = (torch.randn(3, columns),)
    expected = result_of(text, "run", given, tmp_path)
    torch.testing.assert_close(result_of(new, "run", given, tmp_path), expected)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("n = torch.empty_like(x), x.shape[1]", "n = torch.empty_like(x), x.shape[1] // 2", "x"),
        ("torch.empty_like(x)", "x.new_empty((2, x.shape[1] + 7))", "y"),
        ("(0, N, T)", "(0, x.shape[0], T)", "x"),
        ("(row, cols)", "(cols, row)", "x"),
        ("= off + ct", "= off + 1 + ct", "`cols`, and not through a row from its start"),
        ("= off + ct", "= 2 * off + ct", "`cols`, and not through a row from its start"),
    ],
)
def test_arrays_that_go_on_behind_the_row_are_left_alone(old: str, new: str, why: str) -> None:
    """One tile for the whole row reaches further behind it than the last of several did."""
    reason = refusal(ENTRY, GATHERS.replace(old, new))
    assert (f"of `{why}`, which need not end with the row" if why in "xy" else why) in reason


def test_hints_of_other_gpus_stay() -> None:
    by_target = "@tile.kernel(occupancy=tile.ByTarget(sm_90=8, sm_100=16))"
    text = THREE_PASSES.replace("@tile.kernel(occupancy=8)", by_target)
    new = playbook.get(ENTRY).apply(subject(text, sm=90), {"occupancy": 2})
    assert "@tile.kernel(occupancy=tile.ByTarget(sm_90=2, sm_100=16))\ndef k_whole(" in new


def made_by_a_factory() -> str:
    """The kernel in a function that builds it, with a name of that function."""
    head, _, rest = THREE_PASSES.partition("\n\n@tile.kernel")
    inner = textwrap.indent(f"@tile.kernel{rest}", "    ").replace("+ 1e-5", "+ eps")
    return f"{head}\n\ndef made(eps):\n{inner}    return run\n\n\nrun = made(1e-5)\n"


@pytest.mark.parametrize("columns", [100, 8193])
def test_a_kernel_in_a_factory_has_its_copy_beside_it(columns: int, tmp_path: Path) -> None:
    text = made_by_a_factory()
    x, w = torch.randn(3, columns), torch.randn(columns)
    expected = result_of(text, "run", (x, w), tmp_path)
    tried = list(playbook.get(ENTRY).variants(subject(text)))
    for params in tried:
        new = playbook.get(ENTRY).apply(subject(text), params)
        assert "    def k_whole(" in new
        torch.testing.assert_close(result_of(new, "run", (x, w), tmp_path), expected)
    assert len(tried) > 1


def test_loops_within_others_are_left_alone() -> None:
    inner = THREE_PASSES.replace(
        "        total += part\n", "        for _ in range(2):\n            total += part\n"
    )
    assert "loops within others" in refusal(ENTRY, inner)
    one = THREE_PASSES.replace("for i in range(steps)", "if n > 0").replace("i * T", "T")
    one = one.replace("(row, i)", "(row, 0)").replace(
        "for j in range(steps):\n        part", "if n:\n        part"
    )
    assert "and k has" in refusal(ENTRY, one)


@pytest.mark.skipif(probe().tileiras is None, reason="tileiras is not installed")
@pytest.mark.parametrize("sm", others_full(["sm_90", "sm_80", "sm_100"]))
def test_the_copy_compiles(sm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_TILE_CACHE_DIR", "0")
    text = playbook.get(ENTRY).apply(subject(THREE_PASSES), {"occupancy": 4})
    arrays = ("float32", 2), ("float32", 1), ("float32", 2), ("float32", 1)
    assert compiled(load(tmp_path / "whole.py", text), "k_whole", (*arrays, 4096), sm)
