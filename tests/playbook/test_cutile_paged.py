"""paged-loads: the gathers of pages it takes, and what it says of those it leaves alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent import playbook
from agent.environment import probe
from agent.playbook.trial import F32

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

from tests.playbook.test_cutile_compiles import compiled, load  # noqa: E402
from tests.support.rewriting import file, refusal, rewritten, subject  # noqa: E402

ENTRY = "paged-loads"
HOST = (
    "def run(cache, table, lengths):\n    n, m = table.shape\n"
    "    y = torch.empty((n, m * 64, 32))\n"
)
GRID, ARGUMENTS = "(n, m)", "cache, table, lengths, y"
HEADER = "def k(cache, table, lengths, y):\n    sequence, i = ct.bid(0), ct.bid(1)\n"
INDICES = (
    "    slots = ct.arange(TILE, dtype=ct.int32)\n    columns = ct.arange(32, dtype=ct.int32)\n"
)
STORED = "    ct.store(y, (sequence, i, 0), ct.reshape(tile + 1, (1, TILE, 32)))\n"


def pages(*, flat: bool = False) -> tuple[torch.Tensor, ...]:
    """A cache whose table also names pages that are not there, before its first and far beyond."""
    cache = torch.randn(7, 64, 32)
    table = torch.tensor([[3, 0, 6], [-1, 5, 7], [1000, 2, -70]], dtype=torch.int32)
    lengths = torch.tensor([130, 100, 1], dtype=torch.int32)
    return cache.reshape(-1, 32) if flat else cache, table, lengths


def kernel(body: str) -> str:
    return file(HEADER + INDICES + body + STORED, HOST, grid=GRID, arguments=ARGUMENTS)


WHOLE = (
    "    page = ct.gather(table, (sequence, i))\n"
    "    tile = ct.gather(cache, (page, slots[:, None], columns[None, :]){options})\n"
)
A_ROW = (
    "    at = i * TILE + slots\n    page = ct.gather(table, (sequence, at // TILE))\n"
    "    slot = at % TILE\n"
    "    tile = ct.gather(cache, (page[:, None], slot[:, None], columns[None, :]){options})\n"
)
INLINE = (
    "    tile = ct.gather(cache, (ct.gather(table, (sequence, i)).item(), "
    "ct.expand_dims(slots, 1), ct.expand_dims(columns, 0)){options})\n"
)


@pytest.mark.parametrize("body", [WHOLE, A_ROW, INLINE])
@pytest.mark.parametrize(
    "options",
    [
        "",
        ", padding_value=-math.inf, latency=4",
        ", mask=(i * TILE + slots < ct.gather(lengths, sequence))[:, None]",
    ],
)
def test_a_page_is_loaded_whole(body: str, options: str, tmp_path: Path) -> None:
    text = kernel(body.format(options=options))
    new = rewritten(ENTRY, text, pages(), folder=tmp_path)
    assert re.search(r"if 0 <= (page\w*) and \1 < cache\.shape\[0\]:", new)
    assert "ct.load(" in new
    assert "ct.gather(cache" not in new
    assert ("latency=4" in new) == ("latency=4" in options)


@pytest.mark.parametrize(
    "rows",
    [
        "ct.gather(table, (sequence, i)) * TILE + slots",
        "slots + TILE * ct.gather(table, (sequence, i)).item()",
        "ct.gather(table, (sequence, (i * TILE + slots) // TILE)) * TILE + slots",
    ],
)
def test_pages_that_are_rows_of_a_matrix(rows: str, tmp_path: Path) -> None:
    body = f"    rows = {rows}\n    tile = ct.gather(cache, (rows[:, None], columns[None, :]))\n"
    new = rewritten(ENTRY, kernel(body), pages(flat=True), folder=tmp_path)
    assert "index=(page, 0), shape=(TILE, 32)" in new


PARTS = (
    "def k(cache, table, y, PAGE: ct.Constant[int], ROWS: ct.Constant[int]):\n"
    "    sequence = ct.bid(0)\n    columns = ct.arange(32, dtype=ct.int32)\n"
    "    total = ct.zeros((ROWS, 32), dtype=ct.float32)\n"
    "    for i in range(ct.cdiv(table.shape[1] * PAGE, ROWS)):\n"
    "        at = i * ROWS + ct.arange(ROWS, dtype=ct.int32)\n"
    "        page = ct.gather(table, (sequence, at // PAGE))\n"
    "        rows = {rows}\n"
    "        total += ct.gather(cache, {index}) * 2\n"
    "    ct.store(y, (sequence, 0, 0), ct.reshape(total, (1, ROWS, 32)))\n"
)
BY_PAGE = {
    "rows": "(at % PAGE)[:, None]",
    "index": "(page[:, None], rows, columns[None, :])",
}
BY_ROW = {"rows": "page * PAGE + at % PAGE", "index": "(rows[:, None], columns[None, :])"}
PARTS_HOST = (
    "def run(cache, table, rows):\n    {check}\n    y = torch.empty((table.shape[0], rows, 32))\n"
)


def parts(form: dict[str, str], check: str, arguments: str) -> str:
    return file(
        PARTS.format(**form),
        PARTS_HOST.format(check=check),
        grid="(table.shape[0],)",
        arguments=f"cache, table, y, {arguments}",
    )


@pytest.mark.parametrize("form", [BY_PAGE, BY_ROW])
@pytest.mark.parametrize(
    ("check", "arguments"),
    [("rows = 16", "64, 16"), ("page = 64\n    assert page % rows == 0", "page, rows")],
)
def test_a_page_holds_several_tiles(
    form: dict[str, str], check: str, arguments: str, tmp_path: Path
) -> None:
    text = parts(form, check, arguments)
    cache, table, _ = pages(flat=form is BY_ROW)
    new = rewritten(ENTRY, text, (cache, table, 16), folder=tmp_path)
    assert "i % (PAGE // ROWS)" in new
    assert "total += tile * 2" in new


def test_nothing_says_that_tiles_end_with_pages() -> None:
    text = parts(BY_PAGE, "pass", "64, rows")
    assert "nothing says that PAGE is a multiple of ROWS" in refusal(ENTRY, text)
    text = parts(BY_PAGE, "pass", "64, 48")
    assert "nothing says that PAGE is a multiple of ROWS" in refusal(ENTRY, text)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "    page = ct.gather(table, (sequence, slots))\n"
            "    tile = ct.gather(cache, (page[:, None], slots[:, None], columns[None, :]))\n",
            "which is not the same for all of a tile",
        ),
        (
            "    rows = ct.gather(table, (sequence, i)) + slots\n"
            "    tile = ct.gather(cache, (rows[:, None], columns[None, :]))\n",
            "begins at `page`, which is no multiple of `TILE`",
        ),
        (
            "    at = ct.gather(lengths, sequence) + i * TILE + slots\n"
            "    page = ct.gather(table, (sequence, at // TILE))\n"
            "    slot = at % TILE\n"
            "    tile = ct.gather(cache, (page[:, None], slot[:, None], columns[None, :]))\n",
            "which is no multiple of `TILE`",
        ),
        (
            "    at = i * TILE + slots\n"
            "    page = ct.gather(table, (sequence, at // TILE), mask=at < 100)\n"
            "    slot = at % TILE\n"
            "    tile = ct.gather(cache, (page[:, None], slot[:, None], columns[None, :]))\n",
            "has a mask",
        ),
        (
            "    page = ct.gather(table, (sequence, i))\n"
            "    tile = ct.gather(cache, (page, slots[None, :], columns[:, None]))\n",
            "its tile is transposed",
        ),
        (
            "    page = ct.gather(table, (sequence, i))\n"
            "    tile = ct.gather(cache, (page, slots[:, None], columns[None, :]), "
            "padding_value=3)\n",
            "no padding mode is `3`",
        ),
        (
            "    at = i * TILE + slots\n    page = ct.gather(table, (sequence, at // TILE))\n"
            "    tile = ct.gather(cache, (page[:, None], 3, columns[None, :]))\n",
            "repeated along no axis of its tile",
        ),
        (
            "    page = ct.gather(table, (sequence, i))\n    if i < 1:\n        page = page + 1\n"
            "    tile = ct.gather(cache, (page, slots[:, None], columns[None, :]))\n",
            "what `page` is depends on the way to it",
        ),
        (
            "    page, _ = both(i)\n"
            "    tile = ct.gather(cache, (page * TILE, slots[:, None], columns[None, :]))\n",
            "`page` is one of what `both(i)` at line 14 gives: not followed",
        ),
    ],
)
def test_gathers_that_stay(body: str, reason: str) -> None:
    assert reason in refusal(ENTRY, kernel(body))


def test_a_promise_that_pages_are_there_needs_no_branch(tmp_path: Path) -> None:
    text = kernel(WHOLE.format(options=", check_bounds=False"))
    cache, table, lengths = pages()
    calls = (cache, table.clamp(0, 6), lengths)
    new = rewritten(ENTRY, text, calls, folder=tmp_path)
    assert "if " not in new
    assert "padding_mode" not in new


def test_without_tma_a_gather_is_as_good() -> None:
    assert "sm_80 has no TMA" in refusal(ENTRY, kernel(WHOLE.format(options="")), sm=80)


@pytest.mark.skipif(probe().tileiras is None, reason="tileiras is not installed")
@pytest.mark.parametrize(
    "sm", ["sm_90", *(pytest.param(s, marks=pytest.mark.full) for s in ("sm_80", "sm_100"))]
)
def test_it_compiles(sm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_TILE_CACHE_DIR", "0")
    mask = ", mask=(i * TILE + slots < ct.gather(lengths, sequence))[:, None]"
    new = playbook.get(ENTRY).apply(subject(kernel(A_ROW.format(options=mask))), {})
    module = load(tmp_path / "paged.py", new)
    arguments = ((F32, 3), ("int32", 2), ("int32", 1), (F32, 3))
    assert compiled(module, "k", arguments, sm).startswith(b"\x7fELF")
