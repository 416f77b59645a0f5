"""The entries that change when blocks do which tile: what they take, what they leave alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import playbook
from agent.analysis.common.subject import NotApplicable
from agent.playbook.base import Advice

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

from tests.support.rewriting import HEAD, ROWS, file, refusal, rewritten, subject  # noqa: E402
from tests.support.tiers import others_full  # noqa: E402

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


@pytest.mark.parametrize("asked", ["ct.bid(", "ct.bid(axis="])
def test_a_grid_of_three_dimensions_is_counted(asked: str, tmp_path: Path) -> None:
    text = f"{HEAD}{GRID_3D}\n\n{HOST_3D}{LAUNCH_3D}".replace("ct.bid(", asked)
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


def test_launches_that_share_a_line_stay_as_they_are() -> None:
    kernel = "def k(x, y):\n    ct.store(y, (ct.bid(0), 0), ct.load(x, (ct.bid(0), 0), (1, 8)))\n"
    launch = "ct.launch(torch.cuda.current_stream(), ({0}.shape[0],), k, ({0}, {1}))"
    both = f"    {launch.format('a', 'c')}; {launch.format('b', 'd')}\n"
    text = f"{HEAD}{kernel}\n\ndef run(a, b, c, d):\n{both}"
    assert refusal("persistent-blocks", text) == "launches share line 15"
    apart = text.replace("; ", "\n    ")
    assert playbook.get("persistent-blocks").variants(subject(apart))


@pytest.mark.parametrize(
    ("mode", "summed", "grows"),
    [
        ("ZERO", "t", True),
        ("UNDETERMINED", "t", False),
        ("ZERO", "ct.exp(t)", False),
        ("NEG_INF", "ct.exp(t)", True),
        ("ZERO", "ct.where(t <= 0, 1, 0)", False),
    ],
)
def test_tiles_grow_into_padding_that_adds_nothing(mode: str, summed: str, grows: bool) -> None:
    kernel = (
        "def k(x, y, CHUNK: ct.Constant[int]):\n    row = ct.bid(0)\n"
        "    total = ct.zeros((1, 1), dtype=ct.float32)\n"
        "    for i in range(ct.num_tiles(x, axis=1, shape=(1, CHUNK))):\n"
        f"        t = ct.load(x, (row, i), (1, CHUNK), padding_mode=ct.PaddingMode.{mode})\n"
        f"        total += ct.sum({summed}, axis=1, keepdims=True)\n"
        "    ct.store(y, (row, 0), total)\n"
    )
    text = file(kernel, ROWS, grid="(m,)", arguments="x, y, 256")
    sizes = [params["CHUNK"] for params in playbook.get("tile-sizes").variants(subject(text))]
    assert (max(sizes) > 256) is grows


def test_chunks_that_are_scanned_by_themselves_keep_their_size() -> None:
    kernel = (
        "def k(x, y, CHUNK: ct.Constant[int]):\n    row = ct.bid(0)\n"
        "    for i in range(ct.num_tiles(x, axis=1, shape=(1, CHUNK))):\n"
        "        t = ct.load(x, (row, i), (1, CHUNK), padding_mode=ct.PaddingMode.ZERO)\n"
        "        ct.store(y, (row, i), ct.cumsum(t, axis=1))\n"
    )
    text = file(kernel, ROWS, grid="(m,)", arguments="x, y, 64")
    assert "stores what it reduces in that round" in refusal("tile-sizes", text)


# --- loops over tiles ---------------------------------------------------------------------------

TILES = """\
def k(a, b, c, amax, first: int, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    num_m, num_n = ct.cdiv(a.shape[0], TM), ct.cdiv(b.shape[1], TN)
    for tile_id in range(ct.bid(0), num_m * num_n, ct.num_blocks(0)):
        i = tile_id // num_n
        j = tile_id % num_n
        acc = ct.zeros((TM, TN), dtype=ct.float32)
        for k in range(ct.cdiv(a.shape[1], TK)):
            left = ct.load(a, (i, k), (TM, TK), padding_mode=ct.PaddingMode.ZERO)
            acc = ct.mma(left, ct.load(b, (k, j), (TK, TN), padding_mode=ct.PaddingMode.ZERO), acc)
        ct.store(c, (i, j), acc)
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("range(ct.bid(0),", "range(first + ct.bid(0),"),
        ("(i, j), acc)\n", "(i, j), acc)\n        ct.store(amax, (tile_id,), ct.max(acc))\n"),
    ],
)
def test_tiles_are_regrouped_where_the_loop_numbers_nothing_else(old: str, new: str) -> None:
    launch = (
        "    ct.launch(torch.cuda.current_stream(), (64,), k, (a, b, c, amax, 0, 64, 32, 32))\n"
    )
    text = f"{HEAD}{TILES}\n\ndef run(a, b, c, amax):\n{launch}"
    assert playbook.get("grouped-order").variants(subject(text))
    assert old in text
    refusal("grouped-order", text.replace(old, new))


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
        (
            "    for j in range(row, 9, ct.num_blocks(0)):\n        pass\n" + COPY,
            "(m,)",
            "k is persistent already: its loop at line 12",
        ),
        (
            "    n = ct.num_blocks(0)\n    for j in range(row, 9, n):\n        pass\n" + COPY,
            "(m,)",
            "k is persistent already: its loop at line 13",
        ),
        (
            "    n = ct.num_blocks(0)\n    while row < 9:\n        row += 2 * n\n" + COPY,
            "(m,)",
            "k is persistent already: its loop at line 13",
        ),
        (
            "    for j in range(row, 9, 4):\n        pass\n" + COPY,
            "(m,)",
            "k is persistent already: its loop at line 12",
        ),
        (COPY, "make_grid(m)", "is no tuple: `make_grid(m)`"),
        (COPY, "(m,) + (1,)", "is no tuple"),
    ],
)
def test_kernels_that_keep_their_blocks(body: str, grid: str, reason: str) -> None:
    text = file(ONE.format(body=body), ROWS, grid=grid)
    assert reason in refusal("persistent-blocks", text)


@pytest.mark.parametrize(
    "loop", ["range(ct.num_blocks(0))", "range(row, 9)", "range(row, 9, TILE)"]
)
def test_loops_over_something_else_than_blocks_are_not_taken_for_persistent(loop: str) -> None:
    text = file(ONE.format(body=f"    for j in {loop}:\n        pass\n{COPY}"), ROWS, grid="(m,)")
    text = text.replace("def k(x, y)", "def k(x, y, TILE: ct.Constant[int])")
    text = text.replace("(x, y))", "(x, y, 64))")
    assert playbook.get("persistent-blocks").variants(subject(text))


def test_a_kernel_that_is_handed_on_keeps_its_blocks() -> None:
    text = file(ONE.format(body=COPY), ROWS, grid="(m,)")
    assert "handed on at line 22" in refusal("persistent-blocks", f"{text}\n\nKERNELS = [k]\n")


def test_a_product_gets_few_blocks() -> None:
    entry = playbook.get("persistent-blocks")
    product = playbook.get("grouped-order").before
    assert entry.variants(subject(product, sm=80)) == [{"blocks_per_sm": 1}, {"blocks_per_sm": 2}]


def test_a_product_that_was_told_its_occupancy_is_told_again() -> None:
    entry = playbook.get("persistent-blocks")
    product = subject(playbook.get("grouped-order").before.replace("@ct.kernel", HINTED), sm=80)
    alone, both = entry.variants(product)
    assert (alone, both) == ({"blocks_per_sm": 1, "occupancy": 1}, {"blocks_per_sm": 2})
    assert "@ct.kernel(occupancy=1)" in entry.apply(product, alone)
    assert "@ct.kernel(occupancy=2)" in entry.apply(product, both)


def test_a_grouped_product_becomes_persistent(tmp_path: Path) -> None:
    text = small_product(playbook.get("grouped-order").before)
    text = playbook.get("grouped-order").apply(subject(text), {"group": 4})
    left, right = (torch.randint(-3, 4, s).float() for s in ((150, 33), (33, 170)))
    new = rewritten("persistent-blocks", text, (left, right), folder=tmp_path)
    assert new.count("ct.num_blocks(") == 1  # the loop's stride: the rest is given


# --- grouped-order ------------------------------------------------------------------------------


HINTED = "@ct.kernel(occupancy=2)"


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


BATCHED = """\
import cuda.tile as ct
import torch

T = 16


@ct.kernel
def bmm_kernel(a, b, c):
    batch, row, column = ct.bid(0), ct.bid(1), ct.bid(2)
    sum = ct.full((T, T), 0, dtype=ct.float32)
    for k in range(ct.num_tiles(a, axis=2, shape=(1, T, T))):
        left = ct.load(a, (batch, row, k), (1, T, T), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(b, (batch, k, column), (1, T, T), padding_mode=ct.PaddingMode.ZERO)
        sum = ct.mma(ct.reshape(left, (T, T)), ct.reshape(right, (T, T)), sum)
    ct.store(c, (batch, row, column), ct.reshape(sum, (1, T, T)))


def run(a, b):
    c = torch.empty((a.shape[0], a.shape[1], b.shape[2]), dtype=a.dtype)
    grid = (a.shape[0], ct.cdiv(a.shape[1], T), ct.cdiv(b.shape[2], T))
    ct.launch(torch.cuda.current_stream(), grid, bmm_kernel, (a, b, c))
    return c
"""


@pytest.mark.parametrize("order", others_full([(0, 1, 2), (1, 0, 2), (2, 1, 0), (1, 2, 0)]))
def test_a_batch_that_counts_before_the_tiles_comes_last(
    order: tuple[int, int, int], tmp_path: Path
) -> None:
    """Whichever axis of the grid is the batch; every tile of every product is computed once."""
    extents = ("a.shape[0]", "ct.cdiv(a.shape[1], T)", "ct.cdiv(b.shape[2], T)")
    grid = ", ".join(extents[order.index(axis)] for axis in range(3))
    bids = ", ".join(f"ct.bid({axis})" for axis in order)
    text = BATCHED.replace("ct.bid(0), ct.bid(1), ct.bid(2)", bids)
    text = text.replace(", ".join(extents), grid)
    left, right = (torch.randint(-3, 4, s).float() for s in ((3, 100, 33), (3, 33, 70)))
    new = rewritten("grouped-order", text, (left, right), folder=tmp_path)
    assert ("number // tiles" in new) == (order[0] < max(order[1:]))
    grouped = rewritten("persistent-blocks", new, (left, right), folder=tmp_path)
    assert grouped.count("ct.num_blocks(") == 1


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


# --- slices-per-block ---------------------------------------------------------------------------

ROTATED = (
    "def k(x, angle, y):\n    head = ct.bid({axis})\n    i, batch = ct.bid({other}), ct.bid(2)\n"
    "    turn = ct.load(angle, (i, 0), (16, 8), padding_mode=ct.PaddingMode.ZERO)\n"
    "    one = ct.load(x, (batch, head, i, 0), (1, 1, 16, 8), padding_mode=ct.PaddingMode.ZERO)\n"
    "    two = ct.load(x, (batch, head, i, 1), (1, 1, 16, 8), padding_mode=ct.PaddingMode.ZERO)\n"
    "    ct.store(y, (batch, head, i, 0), one * turn - two)\n"
    "    ct.store(y, (batch, head, i, 1), two * turn + one)\n"
)
HEADS = "def run(x, angle):\n    y = torch.empty_like(x)\n    batch, heads, n, _ = x.shape\n"


@pytest.mark.parametrize(("axis", "grid"), [(1, "(n_tiles, heads, batch)"),
                                            (0, "(heads, n_tiles, batch)")])  # fmt: skip
def test_heads_that_share_their_angles(axis: int, grid: str, tmp_path: Path) -> None:
    kernel = ROTATED.format(axis=axis, other=1 - axis)
    host = f"{HEADS}    n_tiles = ct.cdiv(n, 16)\n"
    text = file(kernel, host, grid=grid, arguments="x, angle, y")
    calls = [(torch.randn(2, heads, n, 16), torch.randn(n, 8)) for heads, n in ((5, 40), (8, 16))]
    new = rewritten("slices-per-block", text, *calls, folder=tmp_path)
    assert new.count("(1, 2, 16, 8)") == 2
    assert "ct.cdiv(heads, 2)" in new
    checked = rewritten("check-bounds", new, *calls, folder=tmp_path)
    assert "or ct.cdiv(heads, 2) * 2 > x.shape[1]" in checked
    assert "does not check bounds" in refusal("slices-per-block", checked)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("one * turn", "ct.cumsum(one, 1) * turn", "calls `ct.cumsum`"),
        ("one * turn", "one * head", "uses `head` for more than the index of a tile"),
        ("(1, 1, 16, 8)", "(1, 2, 16, 8)", "the tile at line 14 is not one slice"),
        ("(i, 0), (16, 8)", "(0, 0, i, 0), (1, 1, 16, 8)", "reaches to the axis of `head`"),
        ("16), heads", "16), heads + 1", "a block for each index along axis 1 of y"),
        ("ct.store(y, (batch, head, i, 0)", "ct.store(y, (batch, 0, i, 0)", "without regard to"),
    ],
)
def test_slices_that_are_not_alone(old: str, new: str, reason: str) -> None:
    kernel = ROTATED.format(axis=1, other=0).replace("ct.bid(2)", "0")
    text = file(kernel, HEADS, grid="(ct.cdiv(n, 16), heads)", arguments="x, angle, y")
    assert reason in refusal("slices-per-block", text.replace(old, new))
