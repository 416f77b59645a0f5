"""The entries that change a cuTile kernel's structure: what they take, what they leave alone."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from agent import playbook
from agent.backends.base import KernelClass
from agent.playbook.base import Advice, Hardware, NotApplicable, Params, Subject
from agent.syntax import Source

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

from tests.support.tile_cpu import result_of  # noqa: E402

HEAD = "import math\n\nimport cuda.tile as ct\nimport torch\n\nTILE = 64\n\n\n@ct.kernel\n"
LAUNCH = "    ct.launch(torch.cuda.current_stream(), {grid}, k, ({arguments}))\n    return y\n"


def file(kernel: str, host: str, *, grid: str, arguments: str = "x, y") -> str:
    return f"{HEAD}{kernel}\n\n{host}{LAUNCH.format(grid=grid, arguments=arguments)}"


def subject(text: str, sm: int = 0) -> Subject:
    return Subject(Source(text), KernelClass.MEMORY, Hardware(sm=sm))


def refusal(name: str, text: str, sm: int = 0) -> str:
    with pytest.raises(NotApplicable) as refused:
        playbook.get(name).variants(subject(text, sm))
    assert "\n" not in str(refused.value)
    return str(refused.value)


def rewritten(name: str, text: str, *calls: tuple[Any, ...], folder: Path) -> str:
    """The first variant's text, after every variant gave what the original gives for all calls."""
    entry = playbook.get(name)
    variants: list[Params] = list(entry.variants(subject(text)))
    texts = [entry.apply(subject(text), params) for params in variants]
    for new in texts:
        ast.parse(new)
        with pytest.raises(NotApplicable):
            entry.apply(subject(new), variants[0])
    for arguments in calls:
        expected = result_of(text, "run", arguments, folder)
        for new in texts:
            assert torch.equal(result_of(new, "run", arguments, folder), expected)
    return texts[0]


# --- gather-to-load -----------------------------------------------------------------------------

FLAT = "def run(x):\n    y = torch.empty_like(x)\n"
FLAT_GRID = "(ct.cdiv(x.numel(), TILE),)"
ROWS = "def run(x):\n    m, n = x.shape\n    y = torch.empty((m, n), dtype=x.dtype)\n"


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


def test_a_scattered_number_is_spread_over_its_tile(tmp_path: Path) -> None:
    kernel = (
        "def k(x, y):\n    at = ct.bid(0) * TILE + ct.arange(TILE, dtype=ct.int32)\n"
        "    ct.scatter(y, at, 2.0)\n"
    )
    text = file(kernel, FLAT, grid=FLAT_GRID)
    new = rewritten("gather-to-load", text, (torch.randn(1000),), folder=tmp_path)
    assert "tile=ct.broadcast_to(2.0, (TILE,))" in new


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


# --- persistent-blocks --------------------------------------------------------------------------

GRID_3D = (
    "def k(x, y):\n    '''Doubles.'''\n    i = ct.bid(2)\n    for j in range(2):\n"
    "        tile = ct.load(x, (ct.bid(0), ct.bid(1), i * 2 + j), (1, 1, 16), "
    "padding_mode=ct.PaddingMode.ZERO)\n"
    "        ct.store(y, (ct.bid(0), ct.bid(1), 2 * ct.bid(2) + j), tile + tile)\n"
)
HOST_3D = (
    "def run(x):\n    y = torch.empty_like(x)\n    a, b, c = x.shape\n"
    "    grid = (a, b, ct.cdiv(c, 32))\n    args = (x, y)\n"
)
LAUNCH_3D = "    ct.launch(torch.cuda.current_stream(), grid, k, args)\n    return y\n"


def test_a_grid_of_three_dimensions_is_counted(tmp_path: Path) -> None:
    text = f"{HEAD}{GRID_3D}\n\n{HOST_3D}{LAUNCH_3D}"
    calls = (torch.randn(3, 5, 96),), (torch.randn(7, 4, 32),)
    new = rewritten("persistent-blocks", text, *calls, folder=tmp_path)
    assert "i = block // (n_blocks_0 * n_blocks_1)" in new
    assert "(block // n_blocks_0 % n_blocks_1)" not in new
    assert "args = (x, y, n_blocks_0, n_blocks_1, n_blocks_2)" in new
    assert new.index("'''Doubles.'''") < new.index("for block in range(")


def test_a_block_without_a_name(tmp_path: Path) -> None:
    kernel = (
        "def k(\n    x,\n    y,\n):\n    tile = ct.load(x, (ct.bid(0), 0), (1, TILE), "
        "padding_mode=ct.PaddingMode.ZERO)\n    ct.store(y, (ct.bid(0), 0), tile + tile)\n"
    )
    text = file(kernel, ROWS, grid="(m,)")
    new = rewritten("persistent-blocks", text, (torch.randn(50, 33),), folder=tmp_path)
    assert "    y,\n    n_blocks,\n):" in new
    assert "for block in range(ct.bid(0), n_blocks, ct.num_blocks(0)):" in new


ONE = "def k(x, y):\n    row = ct.bid(0)\n{body}"
COPY = "    ct.store(y, (row, 0), ct.load(x, (row, 0), (1, TILE)))\n"


@pytest.mark.parametrize(
    ("body", "grid", "reason"),
    [
        ("    if row > 3:\n        return\n" + COPY, "(m,)", "line 13 returns"),
        ("    x = x.slice(0, 0, 8)\n" + COPY, "(m,)", "assigns its parameter x"),
        (
            "    ct.atomic_cas(y, (row, 0), 0, 1)\n" + COPY,
            "(m,)",
            "line 12 may wait for another block",
        ),
        ("    n = ct.num_blocks(0)\n" + COPY, "(m,)", "deals with the grid itself"),
        (COPY, "make_grid(m)", "is no tuple: `make_grid(m)`"),
        (COPY, "(m,) + (1,)", "is no tuple"),
    ],
)
def test_kernels_that_keep_their_blocks(body: str, grid: str, reason: str) -> None:
    text = file(ONE.format(body=body), ROWS, grid=grid)
    assert reason in refusal("persistent-blocks", text)


def test_a_kernel_that_is_handed_on_keeps_its_blocks() -> None:
    text = file(ONE.format(body=COPY), ROWS, grid="(m,)")
    assert "handed on at line 22" in refusal("persistent-blocks", f"{text}\n\nKERNELS = [k]\n")


def test_a_product_gets_few_blocks() -> None:
    entry = playbook.get("persistent-blocks")
    product = playbook.get("grouped-order").before
    assert entry.variants(subject(product)) == [{"blocks_per_sm": 1}, {"blocks_per_sm": 2}]


# --- grouped-order ------------------------------------------------------------------------------


def small_product(text: str) -> str:
    return text.replace("M, N, K = 128, 128, 64", "M, N, K = 16, 16, 16").replace(
        "def matmul(", "def run("
    )


@pytest.mark.parametrize(("m", "n"), [(16 * 9, 16 * 5), (16 * 4 + 3, 7), (5, 16 * 21)])
def test_groups_cover_every_tile(m: int, n: int, tmp_path: Path) -> None:
    text = small_product(playbook.get("grouped-order").before)
    left, right = (torch.randint(-3, 4, s).float() for s in ((m, 40), (40, n)))
    rewritten("grouped-order", text, (left, right), folder=tmp_path)


def test_groups_of_persistent_blocks(tmp_path: Path) -> None:
    text = small_product(playbook.get("grouped-order").before)
    text = playbook.get("persistent-blocks").apply(subject(text), {"blocks_per_sm": 2})
    left, right = (torch.randint(-3, 4, s).float() for s in ((150, 33), (33, 170)))
    new = rewritten("grouped-order", text, (left, right), folder=tmp_path)
    assert "height = min(n_blocks_1 - first, 4)" in new


def test_groups_within_a_batch(tmp_path: Path) -> None:
    text = small_product(playbook.get("grouped-order").before)
    text = text.replace("row, column = ct.bid(0), ct.bid(1)", "row, column = ct.bid(1), ct.bid(2)")
    text = text.replace("    grid = (", "    grid = (1, ")
    left, right = (torch.randint(-3, 4, s).float() for s in ((100, 33), (33, 70)))
    new = rewritten("grouped-order", text, (left, right), folder=tmp_path)
    assert "block = ct.bid(1) + ct.bid(2) * ct.num_blocks(1)" in new


def test_other_kernels_keep_their_order() -> None:
    text = file(ONE.format(body=COPY), ROWS, grid="(m,)")
    assert "does not multiply tiles in a loop" in refusal("grouped-order", text)
    row = playbook.get("grouped-order").before.replace("(row, column), tile", "(row, 0), tile")
    assert "has two block indices" in refusal("grouped-order", row)


# --- token-order --------------------------------------------------------------------------------

LOOP = (
    "def k(x, y):\n    first = ct.bid(0) * 4\n    for i in range({range}):\n"
    "        tile = ct.load(x, ({load}, 0), (1, TILE), padding_mode=ct.PaddingMode.ZERO)\n"
    "        ct.store(y, ({store}, 0), tile{value})\n"
)


@pytest.mark.parametrize(
    ("bounds", "load", "store", "value", "loop"),
    [
        ("4", "i + first", "first + i", "", "range(first, first + 4)"),
        ("0, 4", "first + i", "i + first", " * i", "range(first, first + 4)"),
        ("1, 2 + 1", "first + i", "first + i", "", "range(first + 1, first + (2 + 1))"),
    ],
)
def test_loops_that_store_at_a_sum(
    bounds: str, load: str, store: str, value: str, loop: str, tmp_path: Path
) -> None:
    kernel = LOOP.format(range=bounds, load=load, store=store, value=value)
    host = ROWS.replace("torch.empty((m, n)", "torch.zeros((m, n)")
    text = file(kernel, host, grid="(m // 4,)")
    new = rewritten("token-order", text, (torch.randn(12, 50),), folder=tmp_path)
    assert f"for at in {loop}:" in new
    assert ("i = at - first" in new) == bool(value)


@pytest.mark.parametrize(
    ("load", "store"),
    [("i", "i"), ("first + i", "2 * i"), ("first + i", "first + 2 * i")],
)
def test_loops_that_stay(load: str, store: str) -> None:
    kernel = LOOP.format(range="4", load=load, store=store, value="")
    assert "no loop stores" in refusal("token-order", file(kernel, ROWS, grid="(m // 4,)"))


def test_a_loop_that_reads_what_it_stores_stays() -> None:
    kernel = LOOP.format(range="4", load="first + i", store="first + i", value="")
    in_place = kernel.replace("ct.load(x", "ct.load(y")
    assert "no loop stores" in refusal("token-order", file(in_place, ROWS, grid="(m // 4,)"))


def test_a_loop_whose_variable_outlives_it_stays() -> None:
    kernel = LOOP.format(range="4", load="first + i", store="first + i", value="")
    later = kernel + "    ct.store(y, (i, 1), ct.load(x, (i, 1), (1, TILE)))\n"
    assert "no loop stores" in refusal("token-order", file(later, ROWS, grid="(m // 4,)"))


# --- batched-copies, custom-plan ----------------------------------------------------------------


def advice(name: str) -> Advice:
    entry = playbook.find(name)
    assert isinstance(entry, Advice)
    return entry


TWICE = (
    "def run(xs, y):\n    for x in xs:\n        ct.launch(s, (1,), k, (x, y))\n"
    "    ct.launch(s, (1,), k, (y, y))\n"
)


def test_launches_in_a_loop_may_be_batched() -> None:
    text = f"{HEAD}{ONE.format(body=COPY)}\n\n{TWICE}"
    assert advice("batched-copies").fits(subject(text)) == "run launches k in the loop at line 16"
    again = text.replace("    for x in xs:\n    ", "    x = y\n")
    assert advice("batched-copies").fits(subject(again)) == "run launches k 2 times in a row"


def test_one_launch_or_a_choice_of_two_is_no_batch() -> None:
    choice = (
        "def run(x, y):\n    if y:\n        ct.launch(s, (1,), k, (x, y))\n"
        "    else:\n        ct.launch(s, (2,), k, (y, y))\n"
    )
    text = f"{HEAD}{ONE.format(body=COPY)}\n\n{choice}"
    with pytest.raises(NotApplicable, match="more than once"):
        advice("batched-copies").fits(subject(text))


def test_a_plan_begins_with_what_is_loaded_twice() -> None:
    loop = "    for {i} in range(4):\n        t = ct.load(x, (row, {i}), (1, TILE))\n"
    text = f"{HEAD}{ONE.format(body=loop.format(i='i') + loop.format(i='j'))}"
    assert advice("custom-plan").fits(subject(text)) == "k loads x in 2 loops"
    plain = f"{HEAD}{ONE.format(body=COPY)}"
    assert advice("custom-plan").fits(subject(plain)) == "the last resort for k"
    with pytest.raises(NotApplicable, match="no cuTile kernel"):
        advice("custom-plan").fits(subject("import torch\n"))
