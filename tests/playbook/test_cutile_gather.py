"""gather-to-load: the accesses it takes, and those it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import playbook

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

from tests.support.rewriting import ROWS, file, refusal, rewritten, subject  # noqa: E402
from tests.support.tile_cpu import result_of  # noqa: E402

FLAT = "def run(x):\n    y = torch.empty_like(x)\n"
FLAT_GRID = "(ct.cdiv(x.numel(), TILE),)"


@pytest.mark.parametrize(
    "offsets",
    [
        "ct.bid(0) * TILE + ct.arange(TILE, dtype=ct.int32)",
        "ct.arange(TILE, dtype=ct.int32) + TILE * ct.bid(0)",
        "ct.add(ct.arange(TILE, dtype=ct.int32), ct.mul(ct.bid(0), TILE))",
        "ct.full((TILE,), ct.bid(0) * TILE, dtype=ct.int32) + ct.arange(TILE, dtype=ct.int32)",
    ],
)
def test_a_run_of_one_dimension(offsets: str, tmp_path: Path) -> None:
    kernel = (
        f"def k(x, y):\n    offsets = {offsets}\n"
        "    ct.scatter(y, offsets, ct.gather(x, offsets, latency=3) + 1)\n"
    )
    text = file(kernel, FLAT, grid=FLAT_GRID)
    new = rewritten(
        "gather-to-load", text, (torch.randn(1000),), (torch.randn(64),), folder=tmp_path
    )
    assert new.count("index=(ct.bid(0),)") == 2
    assert "latency=3" in new
    assert "arange" not in new


def test_a_row_in_passes_that_use_the_same_names(tmp_path: Path) -> None:
    kernel = (
        "def k(x, y, n):\n    row = ct.bid(0)\n    total = ct.zeros((TILE,), dtype=ct.float32)\n"
        "    for i in range(ct.cdiv(n, TILE)):\n"
        "        at = i * TILE + ct.arange(TILE, dtype=ct.int32)\n"
        "        total = total + ct.gather(x, (row, at))\n"
        "    for i in range((n + TILE - 1) // TILE):\n"
        "        at = i * TILE + ct.arange(TILE, dtype=ct.int32)\n"
        "        tile = ct.gather(x, (row, at), mask=at < n)\n"
        "        ct.scatter(y, (row, at), tile / ct.sum(total))\n"
    )
    text = file(kernel, ROWS, grid="(m,)", arguments="x, y, n")
    new = rewritten("gather-to-load", text, (torch.rand(5, 200),), folder=tmp_path)
    assert new.count("ct.load(x, index=(row, i), shape=(1, TILE)") == 2
    assert "gather" not in new
    assert "at = " not in new


def test_tiles_of_two_dimensions(tmp_path: Path) -> None:
    kernel = (
        "def k(x, y):\n    rows = ct.bid(0) * 16 + ct.arange(16, dtype=ct.int32)\n"
        "    columns = ct.bid(1) * TILE + ct.arange(TILE, dtype=ct.int32)\n"
        "    tile = ct.gather(x, (rows[:, None], columns[None, :]))\n"
        "    ct.scatter(y, (rows[:, None], ct.expand_dims(columns, 0)), tile + tile)\n"
    )
    text = file(kernel, ROWS, grid="(-(-m // 16), math.ceil(n / TILE))")
    new = rewritten("gather-to-load", text, (torch.randn(37, 100),), folder=tmp_path)
    assert "ct.store(y, index=(ct.bid(0), ct.bid(1)), tile=tile + tile)" in new
    assert "arange" not in new


HALVES = (
    "def k(x, y):\n    row = ct.bid(0)\n"
    "    at = ct.bid(1) * TILE + ct.arange(TILE, dtype=ct.int32)\n"
    "    gate = ct.gather(x, (row, at))\n    up = ct.gather(x, (row, at + y.shape[1]))\n"
    "    ct.scatter(y, (row, at), gate * up)\n"
)
HALVES_HOST = "def run(x):\n    m, n = x.shape[0], x.shape[1] {part}\n    y = torch.empty(m, n)\n"


def test_the_second_half_of_a_row_is_a_slice(tmp_path: Path) -> None:
    text = file(HALVES, HALVES_HOST.format(part="// 2"), grid="(m, ct.cdiv(n, TILE))")
    calls = (torch.randn(3, 200),), (torch.randn(2, 2 * 77 + 1),)
    new = rewritten("gather-to-load", text, *calls, folder=tmp_path)
    assert "x.slice(axis=1, start=y.shape[1], stop=x.shape[1])" in new


def test_a_slice_that_may_begin_outside_stays() -> None:
    text = file(HALVES, HALVES_HOST.format(part="- 7"), grid="(m, ct.cdiv(n, TILE))")
    new = playbook.get("gather-to-load").apply(subject(text), {})
    assert "up = ct.gather(x, (row, at + y.shape[1]))" in new


def test_an_assertion_tells_that_a_slice_begins_inside(tmp_path: Path) -> None:
    kernel = (
        "def k(x, y, first):\n    at = ct.bid(0) * TILE + ct.arange(TILE, dtype=ct.int32)\n"
        "    ct.scatter(y, at, ct.gather(x, at + first))\n"
    )
    host = "def run(x, first, n):\n    {check}\n    y = torch.empty(n)\n"
    grid, arguments = "(ct.cdiv(n, TILE),)", "x, y, first"
    checked = host.format(check="assert 0 <= first and first + n <= x.shape[0]")
    text = file(kernel, checked, grid=grid, arguments=arguments)
    new = rewritten("gather-to-load", text, (torch.randn(500), 131, 300), folder=tmp_path)
    assert "gather" not in new
    unchecked = file(kernel, host.format(check="pass"), grid=grid, arguments=arguments)
    entry = playbook.get("gather-to-load")
    assert "ct.gather(x, at + first)" in entry.apply(subject(unchecked), {})


@pytest.mark.parametrize(
    ("padding", "mode"),
    [
        ("-math.inf", "NEG_INF"),
        ("math.inf", "POS_INF"),
        ('float("-inf")', "NEG_INF"),
        ("math.nan", "NAN"),
        ("0", "ZERO"),
        ("-0.0", "NEG_ZERO"),
    ],
)
def test_padding_values(padding: str, mode: str, tmp_path: Path) -> None:
    kernel = (
        "def k(x, y):\n    row = ct.bid(0)\n    at = ct.arange(TILE, dtype=ct.int32)\n"
        f"    tile = ct.gather(x, (row, at), padding_value={padding})\n"
        "    ct.store(y, (row, 0), ct.reshape(tile, (1, TILE)))\n"
    )
    host = "def run(x):\n    y = torch.empty(x.shape[0], TILE)\n"
    text = file(kernel, host, grid="(x.shape[0],)")
    new = playbook.get("gather-to-load").apply(subject(text), {})
    assert f"padding_mode=ct.PaddingMode.{mode}" in new
    arguments = (torch.randn(3, 50),)
    found = result_of(new, "run", arguments, tmp_path)
    torch.testing.assert_close(
        found, result_of(text, "run", arguments, tmp_path), rtol=0, atol=0, equal_nan=True
    )


GATHER = (
    "def k(x, y, n):\n    row, i = ct.bid(0), ct.bid(1)\n"
    "    at = i * TILE + ct.arange(TILE, dtype=ct.int32)\n    ct.store(y, (row, i), "
    "ct.reshape(ct.gather(x, (row, at), {options}), (1, TILE)))\n"
)


@pytest.mark.parametrize(
    ("options", "grid", "reason"),
    [
        ("padding_value=1.0", "(m, ct.cdiv(n, TILE))", "no padding mode is `1.0`"),
        ("mask=at < n - 1", "(m, ct.cdiv(n, TILE))", "nothing says that this is the extent"),
        ("mask=at <= n", "(m, ct.cdiv(n, TILE))", "is no bound of an index"),
        ("latency=1", "(m, ct.cdiv(n, TILE) + 1)", "not bounded by a count of such tiles"),
        ("latency=1", "(m, ct.cdiv(n, 32))", "not bounded by a count of such tiles"),
        ("latency=1", "(m + 1, ct.cdiv(n, TILE))", "tile `row` begins inside axis 0 of x"),
        ("latency=1", "grid(m)", "a grid that this file does not show"),
    ],
)
def test_gathers_that_stay(options: str, grid: str, reason: str) -> None:
    text = file(GATHER.format(options=options), ROWS, grid=grid, arguments="x, y, n")
    assert reason in refusal("gather-to-load", text)


def test_no_bounds_no_proof() -> None:
    text = file(GATHER.format(options="check_bounds=False"), ROWS, grid="g", arguments="x, y, n")
    new = playbook.get("gather-to-load").apply(subject(text), {})
    assert "ct.load(x, index=(row, i), shape=(1, TILE))" in new


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        ("2 * ct.arange(TILE, dtype=ct.int32)", "does not count one by one"),
        ("ct.arange(TILE, dtype=ct.int32, start=1)", "a start or step of its own"),
        ("ct.arange(TILE, dtype=ct.int32) // 2", "does not count one by one"),
        ("ct.bid(0) + ct.arange(TILE, dtype=ct.int32)", "lies inside x"),
    ],
)
def test_indices_that_are_no_runs(index: str, reason: str) -> None:
    kernel = f"def k(x, y):\n    ct.store(y, (0,), ct.gather(x, {index}))\n"
    assert reason in refusal("gather-to-load", file(kernel, FLAT, grid=FLAT_GRID))


def test_an_index_that_changes_on_the_way_stays() -> None:
    kernel = (
        "def k(x, y):\n    i = ct.bid(0)\n    at = i * TILE + ct.arange(TILE, dtype=ct.int32)\n"
        "    i = i + 1\n    ct.store(y, (i,), ct.gather(x, at))\n"
    )
    assert "has another value there" in refusal(
        "gather-to-load", file(kernel, FLAT, grid=FLAT_GRID)
    )


@pytest.mark.parametrize("number", ["2.0", "2"])
def test_a_scattered_number_fills_its_tile(number: str, tmp_path: Path) -> None:
    """In the array's own type: a tile of integers is not stored to one of floats."""
    kernel = (
        "def k(x, y):\n    at = ct.bid(0) * TILE + ct.arange(TILE, dtype=ct.int32)\n"
        f"    ct.scatter(y, at, {number})\n"
    )
    text = file(kernel, FLAT, grid=FLAT_GRID)
    new = rewritten("gather-to-load", text, (torch.randn(1000),), folder=tmp_path)
    assert f"tile=ct.full((TILE,), {number}, dtype=y.dtype)" in new


def test_what_other_blocks_change_atomically_is_gathered() -> None:
    """The last block of several reads what all have added; a TMA load may miss some of it."""
    kernel = (
        "def k(x, y, total):\n    at = ct.bid(0) * TILE + ct.arange(TILE, dtype=ct.int32)\n"
        "    ct.atomic_add(total, at, ct.gather(x, at))\n"
        "    ct.scatter(y, at, ct.gather(total, at))\n"
    )
    host = "def run(x, total):\n    y = torch.empty_like(x)\n"
    text = file(kernel, host, grid="(ct.cdiv(x.shape[0], TILE),)", arguments="x, y, total")
    new = playbook.get("gather-to-load").apply(subject(text), {})
    assert "ct.gather(total, at)" in new
    assert "ct.gather(x" not in new


def test_arrays_of_unknown_length_go_with_one_that_is_known(tmp_path: Path) -> None:
    kernel = (
        "def k(x, z, y):\n    at = ct.bid(0) * TILE + ct.arange(TILE, dtype=ct.int32)\n"
        "    ct.scatter(y, at, ct.gather(x, at) + ct.gather(z, at))\n"
    )
    host = "def run(x, z):\n    y = torch.empty_like(x)\n"
    text = file(kernel, host, grid="(ct.cdiv(x.shape[0], TILE),)", arguments="x, z, y")
    calls = ((torch.randn(100), torch.randn(100)),)
    assert "gather" not in rewritten("gather-to-load", text, *calls, folder=tmp_path)
    masked = text.replace("ct.gather(z, at)", "ct.gather(z, at, mask=at < x.shape[0])")
    assert "ct.gather(z" in playbook.get("gather-to-load").apply(subject(masked), {})
    same = masked.replace("    y =", "    assert x.shape == z.shape\n    y =")
    assert "ct.gather" not in playbook.get("gather-to-load").apply(subject(same), {})


def test_without_tma_a_gather_is_as_good() -> None:
    text = file(GATHER.format(options="latency=1"), ROWS, grid="(m, 1)", arguments="x, y, n")
    assert "sm_80 has no TMA" in refusal("gather-to-load", text, sm=80)
