"""Several rows a program: what is rewritten computes the same, and what may mix rows is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.launches import ObservedLaunch
from agent.playbook.base import Optimization
from agent.syntax import Source
from tests.support.triton_numbers import disagreement

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

ENTRY = playbook.get("rows-per-program")
assert isinstance(ENTRY, Optimization)
LITTLE = {"elements": 128, "elements_per_warp": 32}
FEW = {"elements": 64, "elements_per_warp": 32}
BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "triton"


def subject(text: str) -> Subject:
    return Subject(Source(text), KernelClass.MEMORY, Hardware())


def kernel(body: str, helper: str = "", launch: str = "(n_rows,)", extra: str = "") -> str:
    """A file with a kernel of one row a program around a few lines of it."""
    return f"""\
import torch
import triton
import triton.language as tl

{helper}
@triton.jit
def k(x_ptr, y_ptr, z_ptr, stride, n_cols, scale, BLOCK: tl.constexpr, FLAG: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0.0)
{body}

def f(x):
    y = torch.zeros_like(x)
    z = torch.zeros(x.shape[0])
    n_rows, n_cols = x.shape
    block = triton.next_power_of_2(n_cols)
{extra}
    k[{launch}](x, y, z, x.stride(0), n_cols, 0.5, block, True)
    return y + z[:, None]
"""


STORE = "    tl.store(y_ptr + row * stride + cols, x, mask=mask)\n"
HELPER = "@triton.jit\ndef squared(v):\n    return v * v\n"
MIXING = "@triton.jit\ndef total(v):\n    return tl.sum(v, axis=0)\n"
FIRST = "@triton.jit\ndef first(v, w):\n    half = v * 0.5\n    return half\n"
DEEP = """@triton.jit
def deep(v, N: tl.constexpr):
    result = v if N == 0 else deeper(v, N - 1) * 2
    return result


@triton.jit
def deeper(v, N: tl.constexpr):
    result = deep(v, N)
    return result


"""
MIXED = "@triton.jit\ndef squared(v):\n    return v * tl.sum(v, axis=0)\n"
PICKING = "@triton.jit\ndef pick(v, n):\n    return v if n > 1 else -v\n"
SCALED = "    x = x / (1.0 + tl.max(x, axis=0))\n" + STORE
MAXIMUM = "    tl.store(z_ptr + tl.program_id(0), row)\n"
SHAPES = [[[3, 17]], [[9, 64]], [[1, 1]]]


@pytest.mark.parametrize(
    ("body", "helper"),
    [
        pytest.param("    x -= tl.max(x, 0)\n" + STORE, "", id="axis by position"),
        pytest.param("    x = x - tl.max(x)\n" + STORE, "", id="no axis"),
        pytest.param("    x = tl.cumsum(x, axis=0)\n" + STORE, "", id="scan"),
        pytest.param("    x = first(x, tl.max(x, 0))\n" + SCALED, FIRST, id="helper with lines"),
        pytest.param(
            "    seen = x_ptr + row * stride + cols\n"
            "    w = tl.load(seen, mask=tl.load(seen, mask=mask, other=0.0) > 0, other=0.0)\n"
            "    x += w\n" + SCALED,
            "",
            id="mask that is loaded",
        ),
        pytest.param(
            "    late = tl.arange(\n        0,  # from the first\n        BLOCK,\n    )\n"
            "    x = tl.where(late > 3, x, 0.0)\n" + SCALED,
            "",
            id="comment inside",
        ),
        pytest.param("    x += 2 * tl.program_id(0)\n" + SCALED, "", id="asked twice"),
        pytest.param("    x *= row + 1\n    row = tl.max(x, 0)\n" + MAXIMUM, "", id="row again"),
        pytest.param("    x = squared(x) * scale\n" + SCALED, HELPER, id="helper"),
        pytest.param(
            "    x = squared(x).cast(tl.float32) + tl.cast(x, tl.float32)\n" + SCALED,
            HELPER,
            id="cast as a method and as a function",
        ),
        pytest.param(
            "    tl.store(z_ptr + row, tl.sum(x, axis=0))\n" + STORE, "", id="a number a row"
        ),
        pytest.param("    x = tl.where(cols == row, 1.0, x)\n" + SCALED, "", id="row as a number"),
        pytest.param(
            "    if FLAG:\n        x = x * 2.0\n    else:\n        x = x + 1.0\n" + SCALED,
            "",
            id="branch",
        ),
        pytest.param(
            "    first = tl.load(x_ptr + row * stride)\n    x = x - first\n" + STORE,
            "",
            id="a number loaded",
        ),
        pytest.param(
            "    acc = tl.zeros([BLOCK], tl.float32)\n"
            "    for i in range(3):\n        acc += x * i\n    x = acc\n" + SCALED,
            "",
            id="loop",
        ),
        pytest.param(
            "    y_ptr += row * stride\n    tl.store(y_ptr + cols, x / tl.sum(tl.exp(x)), mask)\n",
            "",
            id="moved pointer",
        ),
    ],
)
def test_rows_are_computed_as_before(body: str, helper: str, tmp_path: Path) -> None:
    text = kernel(body, helper)
    new = ENTRY.apply(subject(text), LITTLE)
    assert "row_mask" in new
    assert disagreement("f", SHAPES, text, [new], True, tmp_path) == ""


@pytest.mark.parametrize(
    ("body", "helper", "reason"),
    [
        ("    tl.atomic_add(z_ptr, tl.sum(x, axis=0))\n" + STORE, "", "more than a tile can do"),
        ("    tl.store(z_ptr + cols, x, mask=mask)\n", "", "to the same place for every row"),
        ("    if row == 0:\n        x = x + 1.0\n" + STORE, "", "branches by the row"),
        ("    if tl.sum(x, axis=0) > 0:\n        x = x + 1.0\n" + STORE, "", "branches by the row"),
        ("    for i in range(row):\n        x = x + 1.0\n" + STORE, "", "as often as its row says"),
        ("    x = x / total(x)\n" + STORE, MIXING, "calls `total`, which may mix rows"),
        ("    x = tl.sort(x)\n" + STORE, "", "calls `tl.sort`, which may mix rows"),
        ("    x = x[:, None] + 1.0\n" + STORE, "", "has no one block for each dimension"),
        ("    if row > 4:\n        return\n" + STORE, "", "branches by the row"),
        ("    return\n" + STORE, "", "more than a tile can do"),
        (
            "    top = 0.0\n    for i in range(3):\n        top = tl.max(x, axis=0)\n" + STORE,
            "",
            "tiles of different shapes of `top`",
        ),
        ("    x += tl.load(z_ptr + cols, mask=cols < row)\n" + STORE, "", "share by the row"),
        ("    x = x * tl.num_programs(0)\n" + STORE, "", "deals with the grid itself"),
        ("    n, m = tl.max(x, axis=0, return_indices=True)\n" + STORE, "", "more than a tile"),
        ("    x = tl.sum(x, axis=0, keep_dims=True)\n" + STORE, "", "in a way of its own"),
        (
            "    if not tl.sum(x, axis=0) > 1:\n        x = x + 1.0\n" + STORE,
            "",
            "whether it is true",
        ),
        ("    x = deep(x, 3)\n" + SCALED, DEEP, "calls `deep`, which may mix rows"),
        ("    x = squared(x)\n" + SCALED, HELPER + MIXED, "calls `squared`, which may mix rows"),
        ("    x = pick(x, row)\n" + STORE, PICKING, "calls `pick`, which may mix rows"),
        (
            "    for i in range(3):\n        scale -= tl.max(x, 0)\n" + STORE,
            "",
            "shapes of `scale`",
        ),
        (
            "    for i in tl.static_range(3):\n        if i > 0:\n            if was > 0:\n"
            "                x = x * 2.0\n        was = tl.max(x, axis=0)\n" + STORE,
            "",
            "branches by the row",
        ),
        ("    x *= tl.max(x, 0) if n_cols > 20 else 1.0\n" + STORE, "", "one shape or another"),
        ("    if n_cols > 9:\n        y_ptr += row * 8\n" + SCALED, "", "shapes of `y_ptr`"),
        (
            "    w = tl.load(x_ptr + row, mask=n_cols > 20)\n    x *= w\n" + STORE,
            "",
            "mask for all rows",
        ),
        (
            "    w = None\n    x *= tl.load(x_ptr + row, mask=w)\n" + STORE,
            "",
            "mask for all rows",
        ),
        (
            "    y_ptr += row * stride\n    x = x.to(y_ptr.type.element_ty)\n" + STORE,
            "",
            "mix rows",
        ),
        (STORE, "", "a larger BLOCK does what more rows would"),
        ("    w = tl.arange(0, 16)\n" + STORE, "", "no one block: 16, BLOCK"),
    ],
)
def test_what_may_mix_rows_is_refused(body: str, helper: str, reason: str) -> None:
    with pytest.raises(NotApplicable, match=reason.replace("(", r"\(")):
        ENTRY.apply(subject(kernel(body, helper)), ENTRY.example)


@pytest.mark.parametrize(
    ("launch", "extra", "reason"),
    [
        ('lambda meta: (meta["ROWS"],)', "", "computed from the config or by calls"),
        ("()", "", "has no axis"),
        ("(count(x),)", "", "computed from the config or by calls"),
        ("grid", "    grid = (n_rows,)\n    print(grid)", "has other uses"),
    ],
)
def test_grids_that_cannot_shrink_are_refused(launch: str, extra: str, reason: str) -> None:
    with pytest.raises(NotApplicable, match=reason):
        ENTRY.apply(subject(kernel(SCALED, launch=launch, extra=extra)), ENTRY.example)


def test_a_grid_by_a_function_shrinks(tmp_path: Path) -> None:
    """As people write it for a flat array: a program a block."""
    count = "triton.cdiv(n, n_cols) * meta['BLOCK'] // block"
    extra = f"    n = x.numel()\n    grid = lambda meta: ({count},)"
    text = kernel(SCALED, launch="grid", extra=extra)
    new = ENTRY.apply(subject(text), LITTLE)
    assert "n_rows=triton.cdiv(n, n_cols) * block // block" in new
    assert disagreement("f", SHAPES, text, [new], True, tmp_path) == ""


TWICE = "    k[{0}](x, y, z, x.stride(0), n_cols, 0.5, block, True)"
HALVES = """
    a, b = x[:2], x[2:]
    size = triton.next_power_of_2(n_cols)
    ga = (a.shape[0],)
    gb = (b.shape[0],)
    k[ga](a, y, z, x.stride(0), n_cols, 0.5, size, True)
    k[gb](b, y[2:], z, x.stride(0), n_cols, 0.5, 2 * size, True)
    return y
"""


def test_two_launches_have_rows_of_their_own(tmp_path: Path) -> None:
    """Their grids are both made before the first launch."""
    head, _, _ = kernel(SCALED).partition("    block = triton.next_power_of_2")
    text = f"{head}{HALVES}"
    new = ENTRY.apply(subject(text), LITTLE)
    assert "ROWS=rows," in new
    assert "ROWS=rows_2," in new
    taken = ENTRY.apply(subject(f"{text}\nrows = None\n"), LITTLE)
    assert "ROWS=rows_2," in taken
    assert "ROWS=rows_3," in taken
    assert disagreement("f", SHAPES[:2], text, [new, taken], True, tmp_path) == ""


def test_what_changes_between_grid_and_launch_is_refused() -> None:
    changing = kernel(
        SCALED, launch="grid", extra="    f.n = n_rows\n    grid = (f.n,)\n    f.n = 1"
    )
    with pytest.raises(NotApplicable, match="changes between the grid and line"):
        ENTRY.apply(subject(changing), LITTLE)
    late = kernel(SCALED, launch="grid", extra="    grid = lambda meta: (n_rows,)\n    f.b = block")
    late = late.replace("0.5, block, True)", "0.5, f.b, True)")
    with pytest.raises(NotApplicable, match=r"f\.b is not known yet where line"):
        ENTRY.apply(subject(late), LITTLE)
    shaped = kernel(SCALED, launch="grid", extra="    grid = (x.shape[0],)")
    assert "n_rows=x.shape[0]" in ENTRY.apply(subject(shaped), LITTLE)


def test_a_grid_that_is_made_before_its_block_is_written_out_at_the_launch(tmp_path: Path) -> None:
    late = kernel(SCALED, launch="grid", extra="    grid = (n_rows,)\n    f.b = block")
    late = late.replace("0.5, block, True)", "0.5, f.b, True)")
    new = ENTRY.apply(subject(late), LITTLE)
    assert "k[(triton.cdiv(n_rows, rows),)](" in new
    assert disagreement("f", SHAPES[:2], late, [new], True, tmp_path) == ""


def test_a_block_with_a_comment_inside_is_refused() -> None:
    text = kernel(SCALED).replace("0.5, block, True)", "0.5, block  # columns\n      + 0, True)")
    with pytest.raises(NotApplicable, match="does not show BLOCK"):
        ENTRY.apply(subject(text), LITTLE)


def test_a_constant_of_the_launch_keeps_its_place_in_the_count(tmp_path: Path) -> None:
    extra = "    half = block // 2\n    n = n_rows * block\n"
    extra += '    grid = lambda meta: (n // meta["BLOCK"],)'
    text = kernel(SCALED, launch="grid", extra=extra).replace("0.5, block,", "0.5, 2 * half,")
    new = ENTRY.apply(subject(text), LITTLE)
    assert "n_rows=n // (2 * half)" in new
    assert disagreement("f", SHAPES[:2], text, [new], True, tmp_path) == ""


@pytest.mark.parametrize(
    ("launch", "extra", "reason"),
    [
        (
            "(n_rows,)",
            TWICE.format("(n_rows,)") + ";" + TWICE.format("(n_rows,)")[3:],
            "shares its",
        ),
        ("grid", "    grid = (n_rows,)\n" + TWICE.format("grid"), "shares its"),
        ("other", "    grid = (n_rows,)\n    other = grid", "has other uses"),
        (
            "grid",
            "    from itertools import count\n    it = count(3)\n"
            '    grid = lambda meta: (meta["FLAG"],)',
            "from the config or by calls",
        ),
    ],
)
def test_launches_that_share_are_refused(launch: str, extra: str, reason: str) -> None:
    text = kernel(SCALED, launch=launch, extra=extra)
    if "count" in extra:
        text = text.replace("True)\n    return", "next(it))\n    return")
    with pytest.raises(NotApplicable, match=reason):
        ENTRY.apply(subject(text), LITTLE)


def test_comments_stay() -> None:
    text = kernel("    acc = tl.zeros(\n        (\n            BLOCK,  # all columns\n        ),\n"
                  "        tl.float32,\n    )\n    x += acc\n" + SCALED)  # fmt: skip
    text = text.replace(
        "def k(x_ptr, y_ptr,", "def k(\n    x_ptr,  # rows, one after the other\n    y_ptr,"
    )
    new = ENTRY.apply(subject(text), LITTLE)
    assert "# all columns" in new
    assert "# rows, one after the other" in new


def test_a_grid_with_a_name_shrinks_where_it_is_made(tmp_path: Path) -> None:
    text = kernel(SCALED, launch="grid", extra="    grid = (n_rows,)")
    new = ENTRY.apply(subject(text), LITTLE)
    assert "    grid = (triton.cdiv(n_rows, rows),)\n" in new
    assert disagreement("f", SHAPES, text, [new], True, tmp_path) == ""


def test_a_block_that_the_launch_computes_is_given_a_name(tmp_path: Path) -> None:
    text = kernel(SCALED).replace("0.5, block, True)", "0.5, triton.next_power_of_2(n_cols), True)")
    text = text.replace("    block = triton.next_power_of_2(n_cols)\n", "")
    new = ENTRY.apply(subject(text), LITTLE)
    assert "    block = triton.next_power_of_2(n_cols)\n    rows = max(128 // block, 1)\n" in new
    assert disagreement("f", SHAPES, text, [new], True, tmp_path) == ""


def test_a_max_of_the_file_s_own_is_not_called() -> None:
    own = [
        kernel(SCALED, extra="    max = 3"),
        kernel(SCALED).replace("def f(x)", "def max(x):\n    return x.max()\n\n\ndef f(x)"),
        f"from torch import max\n{kernel(SCALED)}",
        kernel(SCALED).replace("def f(x)", "def f(x, max=None)"),
    ]
    for text in own:
        with pytest.raises(NotApplicable, match="`max` is a name of the file's own"):
            ENTRY.apply(subject(text), LITTLE)
    elsewhere = kernel("    max = tl.max(x, axis=0)\n    x = x / (1.0 + max)\n" + STORE)
    assert "row_mask" in ENTRY.apply(subject(elsewhere), LITTLE)


def test_warps_that_the_host_computes_stay() -> None:
    text = kernel(SCALED).replace("block, True)", "block, True, num_warps=warps_of(n_cols))")
    new = ENTRY.apply(subject(text), ENTRY.example)
    assert "num_warps=warps_of(n_cols)" in new


@pytest.mark.parametrize("name", ["qk_norm", "rms_norm", "softmax", "layer_norm"])
def test_benchmarks_keep_their_numbers(name: str, tmp_path: Path) -> None:
    text = (BENCHMARKS / name / f"{name}.py").read_text()
    new = ENTRY.apply(subject(text), LITTLE)
    others = {"layer_norm": [[24], [24]], "softmax": []}.get(name, [[24]])
    assert disagreement(name, [[[7, 24], *others]], text, [new], True, tmp_path) == ""


def test_warps_that_the_launch_computes_for_a_row_are_those_of_all_rows(tmp_path: Path) -> None:
    text = kernel(SCALED, extra="    warps = min(max(block // 256, 1), 8)")
    text = text.replace("block, True)", "block, True, num_warps=warps)")
    new = ENTRY.apply(subject(text), {"elements": 1024, "elements_per_warp": 256})
    assert "num_warps=min(rows * warps, 32)" in new
    calls = [[[5, 77]], [[130, 20]]]
    assert disagreement("f", calls, text, [new], False, tmp_path) == ""


@pytest.mark.parametrize("given", ["None", "warps"])
def test_warps_that_may_be_none_stay_as_they_are(given: str) -> None:
    text = kernel(SCALED).replace("def f(x)", "def f(x, warps=None)")
    text = text.replace("block, True)", f"block, True, num_warps={given})")
    new = ENTRY.apply(subject(text), {"elements": 1024, "elements_per_warp": 256})
    assert f"num_warps={given}" in new


def tiled(body: str, axis: int = 1, helper: str = "") -> str:
    """A file with a kernel of one tile of two dimensions a program, of a token and a head."""
    token, head = (f"tl.program_id({place})" for place in (1 - axis, axis))
    grid = "(x.shape[0], heads)" if axis else "(heads, x.shape[0])"
    return f"""\
import torch
import triton
import triton.language as tl

{helper}
@triton.jit
def k(x_ptr, y_ptr, z_ptr, at_ptr, step, head_step, groups, G: tl.constexpr, D: tl.constexpr):
    token = {token}
    head = {head}
    g = tl.arange(0, G)
    d = tl.arange(0, D)
    place = tl.load(at_ptr + token)
    where = token * step + head * head_step + g[:, None] * D + d[None, :]
    mask = g[:, None] < groups
    x = tl.load(x_ptr + where, mask=mask, other=0.0)
{body}    return


def f(x):
    x = x.reshape(x.shape[0], -1, 12)[:, :, :8].contiguous()
    heads, groups = x.shape[1], 2
    y = torch.zeros_like(x)
    z = torch.zeros(x.shape[0], heads, 4)
    at = torch.randperm(x.shape[0], generator=torch.Generator().manual_seed(0)).to(torch.int32)
    grid = {grid}
    k[grid](x, y, z, at, x.stride(0), x.stride(1), groups, G=2, D=4)
    return y + z.sum(dim=-1, keepdim=True)
"""


PUT = "    tl.store(y_ptr + where, x, mask=mask)\n"
PLACE = "place * step + head * head_step + g[:, None] * D + d[None, :]"
TILES = [[[3, 60]], [[9, 24]], [[1, 12]]]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(PUT.replace("where", PLACE), id="copied elsewhere"),
        pytest.param(
            "    scale = tl.max(tl.abs(x), axis=1) + 1.0\n    x = x / scale[:, None]\n" + PUT
            + "    z_ptr += token * (step // D) * 2 + head * 4\n"
            + "    tl.store(z_ptr + g, scale, mask=g < groups)\n",
            id="a scale for each group",
        ),
        pytest.param(
            "    scale = tl.sum(x, axis=0)\n    x = x * scale[None, :] + tl.sum(scale)\n" + PUT,
            id="along the first dimension, then along all",
        ),
        pytest.param(
            "    x = tl.cumsum(x, axis=1) + tl.cumsum(x, -1)\n"
            "    x -= tl.max(x, 1)[:, None]\n" + PUT,
            id="scans, and an axis by position",
        ),
        pytest.param(
            "    acc = tl.zeros((G, D), tl.float32)\n    top = tl.full([G], 0.5, tl.float32)\n"
            "    for i in range(3):\n        acc += x * i + top[:, None]\n"
            "        top += tl.sum(x, axis=1)\n    x = acc\n" + PUT,
            id="tiles that are made",
        ),
        pytest.param(
            "    x = tl.where((g == 1)[:, None] & (d > 1)[None, :], x, head + 0.5)\n" + PUT,
            id="conditions that are laid out",
        ),
        pytest.param(
            PUT.replace("where", "token * step + head * head_step + tl.arange(0, G)[:, None] * D + "
                                 "tl.arange(0, D)[None, :]"),
            id="runs that have no name",
        ),
    ],
)  # fmt: skip
def test_tiles_of_two_dimensions_are_computed_as_before(
    body: str, axis: int, tmp_path: Path
) -> None:
    text = tiled(body, axis)
    new = ENTRY.apply(subject(text), FEW)
    assert "tl.arange(0, ROWS)[:, None, None]" in new and "tl.arange(0, G)[None, :, None]" in new
    assert disagreement("f", TILES, text, [new], True, tmp_path) == ""


def test_tiles_get_the_rows_of_the_last_axis_and_no_more_than_there_are() -> None:
    new = ENTRY.apply(subject(tiled(PUT)), FEW)
    assert "head = tl.program_id(1) * ROWS" in new
    assert "rows = max(min(64 // (2 * 4), triton.next_power_of_2(heads)), 1)" in new
    assert "grid = (x.shape[0], triton.cdiv(heads, rows))\n" in new
    launch = ObservedLaunch("k", "test", (4096, 8), {"G": 8, "D": 8}, {}, {})
    seen = replace(subject(tiled(PUT)), launches=(launch,))
    assert [v["elements"] for v in ENTRY.variants(seen)] == [256, 512, 512]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("    x = x + g\n" + PUT, "has a tile of one dimension beside one of two"),
        ("    x = x + g[None, :]\n" + PUT, "counts along both dimensions of a tile"),
        (
            "    tl.store(y_ptr + g * D + d, 1.0)\n" + PUT,
            "a run of one dimension beside one of the other",
        ),
        (
            "    x *= tl.sum(tl.sum(x, axis=0) + tl.sum(x, axis=1), axis=0)\n" + PUT,
            "a run of one dimension beside one of the other",
        ),
        ("    x = tl.exp(x).T\n" + PUT, "may mix rows: `tl.exp(x).T`"),
        ("    x = x.to(y_ptr.dtype.element_ty).T\n" + PUT, "may mix rows: `x.to"),
        ("    x = positions(x, D)\n" + PUT, "calls `positions`, which may mix rows"),
        ("    x = x * tl.sum(x)\n" + PUT, "reduces along another axis than the row"),
        ("    x = x * tl.sum(x, axis=0)[:, None]\n" + PUT, "lays along a dimension what may be"),
        ("    x = tl.dot(x, x)\n" + PUT, "multiplies tiles: its blocks say how many rows each has"),
        ("    x = tl.trans(x)\n" + PUT, "calls `tl.trans`, which may mix rows"),
        (
            "    x += tl.arange(0, 2)[:, None]\n" + PUT,
            "no one block for each dimension: 2, G and D",
        ),
        ("    x += tl.sum(tl.arange(0, D), axis=0)\n" + PUT, "counts along no dimension"),
        ("    x += tl.zeros((D, G), tl.float32)\n" + PUT, "makes a tile of another shape"),
        (
            "    if place > 3:\n        x += 1.0\n" + PUT + "    tl.store(z_ptr, 0.0)\n",
            "stores to the same",
        ),
    ],
)
def test_what_may_mix_tiles_is_refused(body: str, reason: str) -> None:
    helper = "@triton.jit\ndef positions(x, N: tl.constexpr):\n    return x + tl.arange(0, N)\n"
    with pytest.raises(NotApplicable) as refused:
        ENTRY.apply(subject(tiled(body, helper=helper)), FEW)
    assert reason in str(refused.value)


def test_blocks_of_rows_are_made_larger_instead(tmp_path: Path) -> None:
    """Along the axis of the tokens there are more to give."""
    text = tiled(PUT).replace("head * head_step + g[:, None] * D", "(head * G + g)[:, None] * D")
    new = ENTRY.apply(subject(text), FEW)
    assert "token = tl.program_id(0) * ROWS" in new
    assert disagreement("f", TILES, text, [new], True, tmp_path) == ""
    with pytest.raises(NotApplicable, match="counts along axis 1 of its grid by G: a larger one"):
        ENTRY.apply(subject(text.replace("token * step", "(token * D + d)[None, :] * step")), FEW)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(
            "grid = (x.shape[0], heads)\n",
            "shape = x.shape\n    grid = lambda meta: (shape[0], many)\n    many = heads\n",
            id="an extent that is known late",
        ),
        pytest.param(
            "    k[grid](x, y, z, at, x.stride(0), x.stride(1), groups, G=2, D=4)\n",
            "    for heads in (1, heads):\n"
            "        k[grid](x, y, z, at, x.stride(0), x.stride(1), groups, G=2, D=4)\n",
            id="an extent of a loop",
        ),
        pytest.param(
            "G=2, D=4)", "G=2, D=4, num_warps=8 if heads > 4 else None)", id="no number of warps"
        ),
        pytest.param(
            "    heads, groups = x.shape[1], 2\n",
            "    heads, groups = 0 * x.shape[1], 2\n    y = torch.ones_like(x)\n",
            id="no heads",
        ),
    ],
)
def test_how_many_rows_are_asked_where_that_is_known(old: str, new: str, tmp_path: Path) -> None:
    text = tiled(PUT).replace(old, new)
    assert text != tiled(PUT)
    if "loop" in new or "for heads" in new:
        text = text.replace("grid = (x.shape[0], heads)", "grid = lambda meta: (x.shape[0], heads)")
    if "y = torch.ones" in new:
        text = text.replace("    y = torch.zeros_like(x)\n", "").replace("heads, 4)", "1, 4)")
    written = ENTRY.apply(subject(text), FEW)
    assert disagreement("f", TILES, text, [written], True, tmp_path) == ""


def test_warps_that_may_be_none_stay_none(tmp_path: Path) -> None:
    text = tiled(PUT).replace("    grid =", "    warps = 8 if heads > 4 else None\n    grid =")
    text = text.replace("G=2, D=4)", "G=2, D=4, num_warps=warps)")
    new = ENTRY.apply(subject(text), FEW)
    assert "num_warps=warps and min(rows * warps, 32)," in new
    assert disagreement("f", TILES, text, [new], True, tmp_path) == ""
    kept = text.replace("else None", "else 2")
    assert "num_warps=min(rows * warps, 32)," in ENTRY.apply(subject(kept), FEW)
    inside = tiled(PUT).replace("    k[grid]", "    go = lambda heads: k[(x.shape[0], heads)]")
    with pytest.raises(NotApplicable, match="stands in an expression"):
        ENTRY.apply(subject(inside + "\n"), FEW)
