"""What makes the host check bounds: which accesses it can bound, and which conditions it asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import playbook

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

from tests.support.rewriting import HEAD, ROWS, file, refusal, rewritten, subject  # noqa: E402
from tests.support.tile_cpu import result_of  # noqa: E402

LAUNCH = "    ct.launch(torch.cuda.current_stream(), grid, k, args)\n    return y\n"
TAILED = (torch.randn(5, 128),), (torch.randn(3, 150),), (torch.randn(2, 20),)
"""Rows of whole tiles of 64, rows with a tail, and rows shorter than a tile."""


@pytest.mark.full
def test_every_form_of_an_index_that_the_host_can_bound(tmp_path: Path) -> None:
    """The CPU execution refuses an unchecked tile that leaves its array."""
    kernel = (
        "def k(x, y, first, LEN: ct.Constant[int]):\n    row = ct.bid(0)\n"
        "    n_tiles = ct.num_tiles(x, axis=1, shape=(1, LEN))\n"
        "    for j in range(n_tiles):\n"
        "        tile = ct.load(x, (row, j), (1, LEN), padding_mode=ct.PaddingMode.ZERO)\n"
        "        columns = j * LEN + ct.arange(LEN, dtype=ct.int32)\n"
        "        other = ct.gather(x, (row, columns + first), padding_value=0)\n"
        "        head = ct.load(x, (0, 0), (1, LEN), padding_mode=ct.PaddingMode.ZERO)\n"
        "        ct.scatter(y, (row, columns), ct.reshape(tile + head, (LEN,)) + other)\n"
    )
    host = ROWS.replace("(x)", "(x, first)")
    text = file(kernel, host, grid="(m,)", arguments="x, y, first, TILE")
    calls = [(x, first) for (x,) in TAILED for first in (0, 1, 64, -3)]
    new = rewritten("check-bounds", text, *calls, folder=tmp_path)
    assert new.count("check_bounds=CHECKED") == 4
    assert "        or first < 0\n" in new
    assert "        or ct.cdiv(x.shape[1], TILE) * TILE + first > x.shape[1]\n" in new


def test_what_the_grid_calls_of_a_module_is_the_same_everywhere(tmp_path: Path) -> None:
    """`math.ceil(m / TILE_M)` is the usual grid: `math` has the value that its import gave it."""
    kernel = (
        "def k(x, y, LEN: ct.Constant[int]):\n    row = ct.bid(0)\n"
        "    for j in range(ct.num_tiles(x, axis=1, shape=(1, LEN))):\n"
        "        tile = ct.load(x, (row, j), (1, LEN), padding_mode=ct.PaddingMode.ZERO)\n"
        "        ct.store(y, (row, j), tile)\n"
    )
    host = f"{ROWS}    grid = (math.ceil(m / 1),)\n"
    text = file(kernel, host, grid="grid", arguments="x, y, TILE")
    new = rewritten("check-bounds", text, *TAILED, folder=tmp_path)
    assert "CHECKED" in new


@pytest.mark.parametrize(
    ("tile", "known"),
    [
        ("row * ct.sum(row, axis=1, keepdims=True) + scale", True),
        ("ct.reshape(scale, (1, LEN))", True),
        ("ct.exp(row - scale) * 2.0", True),
        ("ct.where(row > 0.0, row, scale)", True),
        ("ct.cat((row, row), 1)", False),
    ],
)
def test_a_store_whose_tile_has_a_known_shape(tile: str, known: bool, tmp_path: Path) -> None:
    kernel = (
        "def k(x, y, LEN: ct.Constant[int]):\n    i = ct.bid(0)\n"
        "    row = ct.load(x, (i, 0), (1, LEN), padding_mode=ct.PaddingMode.ZERO)\n"
        "    scale = ct.load(x, (0, 0), (1, LEN), padding_mode=ct.PaddingMode.ZERO).reshape((LEN,))"
        f"\n    result = {tile}\n    ct.store(y, (i, 0), result.astype(y.dtype))\n"
    )
    text = file(kernel, ROWS, grid="(m,)", arguments="x, y, TILE")
    calls = ((torch.randn(5, 64),), (torch.randn(2, 20),)) if known else ()
    new = rewritten("check-bounds", text, *calls, folder=tmp_path)
    assert new.count("check_bounds=CHECKED") == 2 + known


@pytest.mark.parametrize("spelt_out", ["", ", check_bounds=True"])
def test_a_padding_that_rules_tma_out_goes_on_doing_so(spelt_out: str, tmp_path: Path) -> None:
    kernel = (
        "def k(x, y):\n    i = ct.bid(0)\n    tile = ct.load(x, (i, 0), (1, TILE), "
        f"padding_mode=ct.PaddingMode.NEG_INF{spelt_out})\n"
        f"    ct.store(y, (i, 0), tile{spelt_out})\n"
    )
    calls = (torch.randn(5, 64),), (torch.randn(2, 20),)
    new = rewritten("check-bounds", file(kernel, ROWS, grid="(m,)"), *calls, folder=tmp_path)
    assert "        allow_tma=False,\n" in new
    assert new.count("check_bounds=CHECKED") == 2


def test_a_scalar_that_is_declared_divisible(tmp_path: Path) -> None:
    kernel = (
        "def k(x, y, first, DIVISOR: ct.Constant[int]):\n    i = ct.bid(0)\n"
        "    first = ct.assume_divisible_by(first, DIVISOR)\n"
        "    tile = ct.gather(x, (i, first + ct.arange(TILE, dtype=ct.int32)))\n"
        "    ct.store(y, (i, 0), ct.reshape(tile, (1, TILE)))\n"
    )
    host = "def run(x, first):\n    m = x.shape[0]\n    y = torch.empty((m, TILE))\n"
    text = file(kernel, host, grid="(m,)", arguments="x, y, first, 1")
    calls = [(torch.randn(3, 200), first) for first in (0, 136, 137)]
    new = rewritten("check-bounds", text, *calls, folder=tmp_path)
    assert "checked = first < 0 or TILE + first > x.shape[1]" in new


@pytest.mark.parametrize(
    ("rows", "condition"), [("m", ""), ("m * 2", "m * 2 > x.shape[0] or ")], ids=["all", "more"]
)
def test_bounds_of_a_persistent_kernel(rows: str, condition: str, tmp_path: Path) -> None:
    """Whose rows are those of the array, or else are counted by the host."""
    kernel = (
        "def k(x, y, n_rows):\n    for row in range(ct.bid(0), n_rows, ct.num_blocks(0)):\n"
        "        tile = ct.load(x, (row, 0), (1, TILE), padding_mode=ct.PaddingMode.ZERO)\n"
        "        ct.store(y, (row, 0), tile)\n"
    )
    text = file(kernel, ROWS, grid="(3,)", arguments=f"x, y, {rows}")
    calls = (torch.randn(5, 64),), (torch.randn(2, 20),)
    new = rewritten("check-bounds", text, *calls, folder=tmp_path)
    assert f"checked = {condition}TILE > x.shape[1]" in new


@pytest.mark.full
def test_a_tile_size_that_changes_after_the_check(tmp_path: Path) -> None:
    """The condition names the tile size, and so follows it."""
    kernel = (
        "def k(x, y, LEN: ct.Constant[int]):\n"
        "    tile = ct.load(x, (ct.bid(0), ct.bid(1)), (1, LEN), "
        "padding_mode=ct.PaddingMode.ZERO)\n"
        "    ct.store(y, (ct.bid(0), ct.bid(1)), tile + tile)\n"
    )
    text = file(kernel, ROWS, grid="(m, ct.cdiv(n, TILE))", arguments="x, y, TILE")
    new = rewritten("check-bounds", text, *TAILED, folder=tmp_path)
    assert "checked = ct.cdiv(n, TILE) * TILE > x.shape[1]" in new
    sizes = playbook.get("tile-sizes")
    tried = list(sizes.variants(subject(new)))
    assert tried == [{"LEN": 32}, {"LEN": 128}, {"LEN": 256}]
    for params in tried:
        resized = sizes.apply(subject(new), params)
        for arguments in TAILED:
            expected = result_of(text, "run", arguments, tmp_path)
            assert torch.equal(result_of(resized, "run", arguments, tmp_path), expected)


def test_a_tile_size_may_not_grow_past_a_check_that_does_not_follow_it() -> None:
    kernel = (
        "def k(x, y, LEN: ct.Constant[int], CHECKED: ct.Constant[bool]):\n"
        "    tile = ct.load(x, (ct.bid(0), ct.bid(1)), (1, LEN), check_bounds=CHECKED)\n"
        "    ct.store(y, (ct.bid(0), ct.bid(1)), tile + tile)\n"
    )
    host = f"{ROWS}    checked = n % 64 != 0\n"
    text = file(kernel, host, grid="(m, ct.cdiv(n, TILE))", arguments="x, y, TILE, checked")
    assert list(playbook.get("tile-sizes").variants(subject(text))) == [{"LEN": 32}]


@pytest.mark.parametrize(
    ("index", "arguments", "reason"),
    [
        ("(ct.bid(0), 0), (1, LEN)", "x, y, 64", "the launch gives LEN as a number, 64"),
        ("(ct.bid(0) - 1, 0), (1, LEN)", "x, y, TILE", "not known before the launch"),
        ("(ct.bid(0), 0), (1, LEN), order=(0, 1)", "x, y, TILE", "its axes are reordered"),
        ("(ct.bid(0) // 2, 0), (1, LEN)", "x, y, TILE", "not known before the launch"),
    ],
)
def test_an_access_whose_reach_the_host_cannot_tell(
    index: str, arguments: str, reason: str
) -> None:
    kernel = (
        "def k(x, y, LEN: ct.Constant[int]):\n"
        f"    ct.store(y, (ct.bid(0), 0), ct.load(x, {index}), check_bounds=False)\n"
    )
    assert reason in refusal("check-bounds", file(kernel, ROWS, grid="(m,)", arguments=arguments))


def test_two_launches_whose_arguments_stand_on_one_line() -> None:
    kernel = (
        "def k(x, y):\n    i = ct.bid(0)\n    ct.store(y, (i, 0), ct.load(x, (i, 0), (1, TILE)))\n"
    )
    host = (
        f"{ROWS}    one, two = (x, y), (y, x)\n    s = torch.cuda.current_stream()\n"
        "    ct.launch(s, (m,), k, one)\n    ct.launch(s, (m,), k, two)\n    return y\n"
    )
    text = f"{HEAD}{kernel}\n\n{host}"
    assert refusal("check-bounds", text) == "line 18 lists the arguments of two launches"


def test_an_array_that_is_another_one_in_the_kernel() -> None:
    kernel = (
        "def k(x, y):\n    i = ct.bid(0)\n    x = x.slice(axis=0, start=0, stop=1)\n"
        "    ct.store(y, (i, 0), ct.load(x, (i, 0), (1, TILE)), check_bounds=False)\n"
    )
    reason = refusal("check-bounds", file(kernel, ROWS, grid="(m,)"))
    assert "`x` is no longer what the launch gives for it" in reason


def test_a_grid_that_is_another_one_where_the_arguments_are_listed() -> None:
    kernel = (
        "def k(x, y):\n    ct.store(y, (ct.bid(0), 0), ct.load(x, (ct.bid(0), 0), (1, TILE)))\n"
    )
    host = f"{ROWS}    grid = (m,)\n    m = 2 * m\n    args = (x, y)\n"
    text = f"{HEAD}{kernel}\n\n{host}{LAUNCH}"
    assert "the grid has another value at line" in refusal("check-bounds", text)


PLAIN = (
    "def k(x, y):\n    row, column = ct.bid(0), ct.bid(1)\n"
    "    tile = ct.load(x, (row, column), (1, TILE), padding_mode=ct.PaddingMode.ZERO)\n"
    "    ct.store(y, (row, column), tile + tile)\n"
)


@pytest.mark.parametrize(
    "change",
    [
        "    y.resize_(m, 100)\n",
        "    z = y\n    z.resize_(m, 100)\n",
        "    y.data = y[:, :100]\n",
        "    def trim():\n        nonlocal y\n        y = y[:, :100]\n\n    trim()\n",
        "    y = torch.empty(0)\n    torch.add(x[:, :100], 1, out=y)\n",
    ],
)
def test_an_array_whose_shape_is_no_longer_the_one_it_was_made_with(
    change: str, tmp_path: Path
) -> None:
    text = file(PLAIN, f"{ROWS}{change}", grid="(m, ct.cdiv(n, TILE))")
    new = rewritten("check-bounds", text, (torch.randn(5, 128),), folder=tmp_path)
    assert "ct.cdiv(n, TILE) * TILE > y.shape[1]" in new


def test_a_grid_from_an_array_that_is_resized_before_the_launch() -> None:
    host = f"{ROWS}    grid = (y.shape[0], 1)\n    y.resize_(m - 1, n)\n    args = (x, y)\n"
    text = f"{HEAD}{PLAIN}\n\n{host}{LAUNCH}"
    assert "the grid has another value at line" in refusal("check-bounds", text)


WITH_BIAS = (
    "def k(x, bias, y, HAS_BIAS: ct.Constant[bool]):\n    row, column = ct.bid(0), ct.bid(1)\n"
    "    tile = ct.load(x, (row, column), (1, TILE), padding_mode=ct.PaddingMode.ZERO)\n"
    "    if {test}:\n"
    "        tile += ct.load(bias, (row, column), (1, TILE), padding_mode=ct.PaddingMode.ZERO)\n"
    "    ct.store(y, (row, column), tile + tile)\n"
)


@pytest.mark.parametrize(
    ("test", "given", "guard"),
    [
        ("HAS_BIAS", "has_bias", "has_bias"),
        ("HAS_BIAS", "bias is not None", "bias is not None"),
        ("not HAS_BIAS", "bias is None", "not (bias is None)"),
        ("HAS_BIAS == 1", "has_bias", "has_bias == 1"),
        ("HAS_BIAS and not HAS_BIAS == 0", "has_bias", "(has_bias and (not (has_bias == 0)))"),
    ],
)
def test_an_array_that_the_kernel_may_be_compiled_without(
    test: str, given: str, guard: str, tmp_path: Path
) -> None:
    """What is given in its place may have fewer axes than the access, which is then not there."""
    host = ROWS.replace("(x)", "(x, bias=None)") + (
        "    has_bias = bias is not None\n    other = x.new_empty(1) if bias is None else bias\n"
    )
    kernel = WITH_BIAS.format(test=test)
    grid = "(x.shape[0], ct.cdiv(x.shape[1], TILE))"
    text = file(kernel, host, grid=grid, arguments=f"x, other, y, {given}")
    x, whole = torch.randn(5, 100), torch.randn(4, 128)
    calls = (x,), (x, torch.randn(5, 100)), (whole,), (whole, torch.randn(4, 128))
    new = rewritten("check-bounds", text, *calls, folder=tmp_path)
    assert f"or ({guard} and x.shape[0] > other.shape[0])" in new
    assert new.count("check_bounds=CHECKED") == 2


def test_a_branch_of_which_the_host_cannot_tell() -> None:
    kernel = WITH_BIAS.format(test="HAS_BIAS + row > 1")
    text = file(kernel, ROWS, grid="(m, ct.cdiv(n, TILE))", arguments="x, x, y, True")
    new = playbook.get("check-bounds").apply(subject(text), {})
    assert new.count("check_bounds=CHECKED") == 1


def test_a_launch_of_the_module_itself() -> None:
    """As scripts have it: what decides on the checks stands above it, at its own indentation."""
    script = f"""\
{HEAD}def k(x, y):
    i = ct.bid(0)
    ct.store(y, (i,), 2 * ct.load(x, (i,), (64,), padding_mode=ct.PaddingMode.ZERO))


n = 100
x = torch.ones(n)
y = torch.empty_like(x)
ct.launch(torch.cuda.current_stream(), (ct.cdiv(n, 64),), k, (x, y))
"""
    entry = playbook.get("check-bounds")
    new = entry.apply(subject(script), entry.variants(subject(script))[0])
    assert "\nchecked = ct.cdiv(n, 64) * 64 > y.shape[0]\nct.launch(" in new
