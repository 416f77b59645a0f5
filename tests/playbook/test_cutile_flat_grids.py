"""Products whose blocks take one number apart by `//` and `%`: order, persistence, tile sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.environment import probe

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

from agent import playbook  # noqa: E402
from tests.playbook.test_cutile_compiles import compiled, load  # noqa: E402
from tests.support.rewriting import refusal, rewritten, subject  # noqa: E402
from tests.support.tiers import others_full  # noqa: E402
from tests.support.tile_cpu import result_of  # noqa: E402

ENTRY = "grouped-order"
FLAT = """\
import cuda.tile as tile
import torch

TM, TN, TK = 16, 32, 16


@tile.kernel
def k(a, b, bias, c, wide: int):
    pid = tile.bid(0)
    # which tile of the result
    i = pid // wide
    j = pid % wide
    total = tile.zeros((TM, TN), dtype=tile.float32)
    for at in range(tile.num_tiles(a, axis=1, shape=(TM, TK))):
        left = tile.load(a, (i, at), (TM, TK), padding_mode=tile.PaddingMode.ZERO)
        right = tile.load(b, (j, at), (TN, TK), padding_mode=tile.PaddingMode.ZERO)
        total = tile.mma(left, right.transpose(), total)
    total = total + tile.load(bias, (j,), (TN,), padding_mode=tile.PaddingMode.ZERO)
    tile.store(c, (i, j), total.astype(c.dtype))


def run(a, b, bias, more=0):
    m, n = a.shape[0], b.shape[0]
    c = torch.zeros((m + 64, n), dtype=a.dtype, device=a.device)
    wide = tile.cdiv(n, TN)
    grid = (tile.cdiv(m, TM) * wide + more,)
    tile.launch(torch.cuda.current_stream(), grid, k, (a, b, bias, c, wide))
    return c
"""
"""More blocks than `wide` divides, at that: what is right must not rest on the grid."""

BY_COLUMNS = FLAT.replace("i = pid // wide", "j = pid // wide").replace(
    "    j = pid % wide\n", "    i = pid % wide\n"
)
INLINE = FLAT.replace("    pid = tile.bid(0)\n", "").replace("pid ", "tile.bid(0) ")
COUNTED = FLAT.replace("c, wide: int):", "c):\n    wide = tile.cdiv(b.shape[0], TN)").replace(
    "c, wide))", "c))"
)


def operands(m: int, n: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randint(-3, 4, s).float() for s in ((m, 40), (n, 40), (n,)))


SIZES = [(200, 100, 0), (200, 100, 1), (5, 300, 0), (300, 5, 0), (130, 90, 2)]


@pytest.mark.parametrize("sizes", others_full(SIZES, 2))
def test_every_tile_is_computed_once_whatever_the_grid(
    sizes: tuple[int, int, int], tmp_path: Path
) -> None:
    m, n, more = sizes
    new = rewritten(ENTRY, FLAT, (*operands(m, n), more), folder=tmp_path)
    assert "group = 4 if tile.num_blocks(0) % wide == 0 else 1" in new
    assert new.index("# which tile of the result") < new.index("group = 4")


@pytest.mark.parametrize("text", others_full([COUNTED, INLINE]))
def test_other_ways_to_write_it(text: str, tmp_path: Path) -> None:
    rewritten(ENTRY, text, operands(200, 100), folder=tmp_path)


def test_columns_that_come_first(tmp_path: Path) -> None:
    """The number of rows is what divides then."""
    text = BY_COLUMNS.replace("wide = tile.cdiv(n, TN)", "wide = tile.cdiv(m, TM)").replace(
        "tile.cdiv(m, TM) * wide", "tile.cdiv(n, TN) * wide"
    )
    rewritten(ENTRY, text, operands(100, 200), folder=tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("tile.load(bias, (j,)", "tile.load(bias, (pid % 3,)", "more than row and column"),
        ("    total = tile.zeros", "    wide = 3\n    total = tile.zeros", "two block indices"),
        ("pid % wide", "pid % (wide + 1)", "two block indices"),
        ("(i, j), total", "(i, j * 1), total", "two block indices"),
    ],
)
def test_what_is_not_plainly_a_tile_stays(old: str, new: str, why: str) -> None:
    text = FLAT.replace(old, new)
    assert text != FLAT
    if "wide = 3" in new:  # another value by the time that the rest is read
        text = text.replace("    j = pid % wide\n", "").replace(
            "wide = 3\n", "wide = 3\n    j = pid % wide\n"
        )
    assert why in refusal(ENTRY, text)


def once(text: str) -> str:
    """With no blocks too many, and a result that they cover."""
    return text.replace(", more=0", "").replace(" + more", "").replace("m + 64", "m")


@pytest.mark.parametrize("text", others_full([FLAT, COUNTED]))
def test_persistent_blocks_count_on(text: str, tmp_path: Path) -> None:
    new = rewritten("persistent-blocks", once(text), operands(130, 90), folder=tmp_path)
    assert "in range(tile.bid(0), " in new
    rewritten(ENTRY, once(text), operands(130, 90), folder=tmp_path)


@pytest.mark.parametrize("text", others_full([COUNTED, FLAT]))
def test_tile_sizes_follow(text: str, tmp_path: Path) -> None:
    """`wide` follows TN only where the kernel counts it: as an argument it might mean anything."""
    entry = playbook.get("tile-sizes")
    flat = subject(once(text))
    every = entry.variants(flat)
    assert {name for params in every for name in params} >= {"TM", "TK"}
    given = operands(130, 90)
    expected = result_of(once(text), "run", given, tmp_path)
    for params in (every[0], every[-1]):
        assert torch.equal(result_of(entry.apply(flat, params), "run", given, tmp_path), expected)


@pytest.mark.skipif(probe().tileiras is None, reason="tileiras is not installed")
@pytest.mark.parametrize("sm", others_full(["sm_90", "sm_80", "sm_100"]))
def test_it_compiles(sm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_TILE_CACHE_DIR", "0")
    module = load(tmp_path / "flat.py", playbook.get(ENTRY).apply(subject(FLAT), {"group": 8}))
    arrays = (("float16", 2), ("float16", 2), ("float16", 1), ("float16", 2))
    assert compiled(module, "k", (*arrays, "int32"), sm).startswith(b"\x7fELF")
