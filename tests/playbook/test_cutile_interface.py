"""The cuTile entries that change a kernel's parameters, its launches or its tile shapes."""

from __future__ import annotations

import re

import pytest

from tests.support.playbook import apply, kernel, refusal, variants

# --- static-shapes ------------------------------------------------------------------------------

ROW = "ct.store(y, (0, 0), ct.load(x, (0, 0), (1, 8)))"
ALIAS = "StaticRow = Annotated[ct.Array, ct.ArrayAnnotation(static_shape_dims=(-1,))]\n"
LAST = {"dimension": -1}


def test_arrays_that_are_annotated_stay() -> None:
    text = apply("static-shapes", kernel(ROW, "x: ct.Array, y: ct.IndexedWithInt64"), LAST)
    assert "def k(x: StaticRow, y: ct.IndexedWithInt64):" in text


@pytest.mark.parametrize("absent", ["None", "0"])
def test_arrays_that_a_caller_may_leave_out_stay(absent: str) -> None:
    """`ct.ArrayAnnotation` is for arrays alone."""
    text = f"""
import cuda.tile as ct


@ct.kernel
def k(x, y):
    {ROW}


def f(stream, x, y={absent}):
    ct.launch(stream, (1,), k, (x, y))
"""
    assert "def k(x: StaticRow, y):" in apply("static-shapes", text, LAST)


@pytest.mark.parametrize(
    ("body", "stays"),
    [
        ("n = x.shape[1]\nt = 1.0 / (n - 1)", True),
        ("n = x.shape[1] - 80\nt = 7 // n", True),
        ("t = ct.rsqrt(x.shape[1] - 80.0)", True),
        ("n = x.shape[1]\nt = ct.sum(ct.load(x, (0, 0), (1, 8))) / n", False),
        ("n = x.shape[1]\nt = ct.sum(ct.load(x, (0, 0), (1, 8)) - n) / (n * 2)", False),
    ],
)
def test_what_some_lengths_have_not_is_not_computed_by_the_compiler(body: str, stays: bool) -> None:
    """Rows of one have no unbiased variance: with a constant length they would not compile."""
    text = kernel(f"{ROW}\n{body}")
    if stays:
        assert "from a length alone what some lengths have not" in refusal("static-shapes", text)
    else:
        assert "def k(x: StaticRow, y: StaticRow)" in apply("static-shapes", text, LAST)


def test_flat_arrays_stay() -> None:
    flat = "ct.store(y, (0,), ct.load(x, (0,), (8,)))"
    assert "two or more dimensions" in refusal("static-shapes", kernel(flat))


@pytest.mark.parametrize(
    ("body", "annotated"),
    [
        pytest.param("w = ct.load(w, (0,), (8,))", True, id="weights"),
        pytest.param("w = ct.gather(w, ct.arange(8, dtype=ct.int32))", True, id="gathered weights"),
        pytest.param(
            "for j in range(4):\n    t = ct.load(w, (j,), (8,))", True, id="weights in tiles"
        ),
        pytest.param("w = ct.load(w, (ct.bid(0),), (8,))", False, id="a part of it for each block"),
        pytest.param(
            "i = ct.bid(0) * 2\nw = ct.gather(w, i + 1)", False, id="an element for each block"
        ),
        pytest.param("t = ct.load(w, (0,), (8,))\nct.store(w, (0,), t)", False, id="it is written"),
        pytest.param(
            "t = ct.load(w, (0,), (8,))\nt = ct.load(w, (ct.bid(0),), (8,))",
            False,
            id="both",
        ),
        pytest.param("t = ct.load(w, (0,), (4,))", False, id="tiles that are no rows"),
        pytest.param(
            "for i in range(w.shape[0] - 1):\n    t = ct.gather(w, i + 1)",
            False,
            id="the ends of sequences",
        ),
        pytest.param(
            "if n > 0:\n    t = ct.load(w, (0,), (8,))", False, id="one that may be left out"
        ),
        pytest.param(
            "if n > 0:\n    t = ct.load(w, (0,), (8,))\nelse:\n    t = -ct.load(w, (0,), (8,))",
            True,
            id="either way",
        ),
    ],
)
def test_vectors_that_all_blocks_read_alike_are_as_long_as_a_row(
    body: str, annotated: bool
) -> None:
    text = kernel(f"{ROW}\n{body}", "x, w, y, n: ct.Constant[int]", "x, n, y, 1")
    found = "w: StaticRow" if annotated else "w,"
    assert f"def k(x: StaticRow, {found}" in apply("static-shapes", text, LAST)


@pytest.mark.parametrize(
    ("head", "changed"),
    [
        ("", f"from typing import Annotated\n\nimport cuda.tile as ct\n\n{ALIAS}"),
        (
            '"""Rows."""\n\nfrom __future__ import annotations\n\nimport math\n\n',
            '"""Rows."""\n\nfrom __future__ import annotations\n\nimport math\n'
            f"from typing import Annotated\n\nimport cuda.tile as ct\n\n{ALIAS}",
        ),
        (
            "import math\nimport zlib\nfrom collections.abc import Mapping\n\n",
            "import math\nimport zlib\nfrom collections.abc import Mapping\n"
            f"from typing import Annotated\n\nimport cuda.tile as ct\n\n{ALIAS}",
        ),
        (
            "from math import log\nimport zlib\n\n",
            "from math import log\nfrom typing import Annotated\nimport zlib\n\n"
            f"import cuda.tile as ct\n\n{ALIAS}",
        ),
        (
            "import torch\nimport zlib\nimport math\n",
            "import torch\nimport zlib\nimport math\nfrom typing import Annotated\n"
            f"import cuda.tile as ct\n\n{ALIAS}",
        ),
        (
            "# Rows.\nimport torch\n",
            "# Rows.\nfrom typing import Annotated\n\nimport torch\nimport cuda.tile as ct\n\n"
            f"{ALIAS}",
        ),
        (
            "from typing import Annotated, Any\n\n",
            f"from typing import Annotated, Any\n\nimport cuda.tile as ct\n\n{ALIAS}",
        ),
    ],
)
def test_what_the_annotation_needs_is_imported(head: str, changed: str) -> None:
    assert apply("static-shapes", head + kernel(ROW), LAST).startswith(changed)


# --- parameters and launches --------------------------------------------------------------------

COPY = "o = ct.bid(0) * stride + ct.arange(8, dtype=ct.int32)\nct.scatter(y, o, ct.gather(x, o))"
SIXTEEN = {"divisor": 16}


@pytest.mark.full
def test_added_arguments_are_laid_out_as_the_others() -> None:
    text = kernel(COPY, "\n    x,  # in\n    y,  # out\n    stride,  # of both\n", (
        "\n        x,\n        y,\n        x.stride(0),  # elements\n    "
    ))  # fmt: skip
    changed = apply("assume-divisible", text, SIXTEEN)
    assert (
        "    y,  # out\n    stride,  # of both\n    STRIDE_DIVISOR: ct.Constant[int],\n):\n"
        "    stride = ct.assume_divisible_by(stride, STRIDE_DIVISOR)\n"
    ) in changed
    assert (
        "        x.stride(0),  # elements\n        16 if x.stride(0) % 16 == 0 else 1,\n    ))"
    ) in changed


def test_the_remainder_is_taken_of_the_whole_expression() -> None:
    text = kernel(COPY, "x, y, stride", "x, y, x.stride(0) + x.shape[1]")
    assert "16 if (x.stride(0) + x.shape[1]) % 16 == 0 else 1)" in apply(
        "assume-divisible", text, SIXTEEN
    )


@pytest.mark.parametrize(
    ("body", "given"),
    [
        (COPY, "x.mean()"),  # no integer
        (COPY, "64"),  # the compiler could be told by a constant
        (COPY, "next(n)"),  # must not be evaluated twice
        (COPY.replace("* stride", "// stride"), "x.stride(0)"),
        (f"stride = ct.assume_divisible_by(stride, 8)\n{COPY}", "x.stride(0)"),
        (ROW, "x.stride(0)"),
    ],
)
def test_scalars_that_nothing_is_assumed_of(body: str, given: str) -> None:
    text = kernel(body, "x, y, stride", f"x, y, {given}")
    assert "no index of a gather or scatter" in refusal("assume-divisible", text)


def test_an_index_may_be_computed_in_steps() -> None:
    body = (
        "row = ct.bid(0) * stride\no = ct.expand_dims(row + ct.arange(8, dtype=ct.int32), 0)\n"
        "ct.scatter(y, o, ct.gather(x, o), mask=o < n)"
    )
    changed = apply(
        "assume-divisible", kernel(body, "x, y, n, stride", "x, y, x.numel(), x.stride(0)"), SIXTEEN
    )
    assert "STRIDE_DIVISOR: ct.Constant[int])" in changed
    assert "N_DIVISOR" not in changed


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("(x, y, n))", "(x, y, next(n)))"), "computes what it gives for dead: `next(n)`"),
        (("(x, y, n))", "args)\n    print(args)"), "does not show its arguments"),
        (
            ("    ct.launch(stream, (1,), k, (x, y, n))", "    args = (x, y, n)\n"
             "    ct.launch(stream, (1,), k, args)\n    print(args)"),
            "passes arguments that are used elsewhere too",
        ),
        (("def run", "tune(k)\n\ndef run"), "hands k on, with arguments of its own"),
        (("def k(x, y, dead)", "def k(x, y, *, dead)"), "has parameters that no tuple shows"),
    ],
)  # fmt: skip
def test_parameters_that_are_not_ours_to_drop(change: tuple[str, str], reason: str) -> None:
    text = kernel(ROW, "x, y, dead", "x, y, n")
    assert "def k(x, y):" in apply("dead-parameters", text)
    assert reason in refusal("dead-parameters", text.replace(*change))


def test_a_comment_goes_with_its_parameter() -> None:
    text = kernel(
        ROW,
        "\n    x,  # in\n    y,  # out\n    dead,  # old\n",
        "\n        x,  # one\n        y,  # two\n        n,  # three\n    ",
    )
    changed = apply("dead-parameters", text)
    assert "    x,  # in\n    y,  # out\n):\n" in changed
    assert "        x,  # one\n        y,  # two\n    ))\n" in changed


def test_a_tuple_of_one_stays_a_tuple() -> None:
    text = kernel("ct.store(x, (0,), 1)", "dead, x", "n, x")
    assert "k, (x,))" in apply("dead-parameters", text)
    text = kernel("ct.store(x, (0,), 1)", "x, dead", "x, n")
    assert "k, (x,))" in apply("dead-parameters", text)


# --- rows-per-block -----------------------------------------------------------------------------

SCALED = (
    "row = ct.bid(0)\n"
    "w = ct.load(y, (0, 0), (1, 8))\n"
    "total = ct.zeros((1, 8), ct.float32)\n"
    "for i in range(ct.num_tiles(x, axis=1, shape=(1, 8))):\n"
    "    total += ct.load(x, (row, i), (1, 8))\n"
    "ct.store(x, (row, 0), w * ct.sum(total, axis=1, keepdims=True))"
)
ROWS = {"rows": 4}


def test_tiles_of_rows_grow_and_tiles_for_all_rows_do_not() -> None:
    text = kernel(SCALED, grid="(x.shape[0],)")
    expected = text.replace("zeros((1, 8)", "zeros((4, 8)").replace("shape=(1, 8)", "shape=(4, 8)")
    expected = expected.replace("(row, i), (1, 8)", "(row, i), (4, 8)")
    assert apply("rows-per-block", text, ROWS) == expected.replace(
        "(x.shape[0],)", "(ct.cdiv(x.shape[0], 4),)"
    )


def test_rows_of_a_kernel_that_is_launched_under_another_name_stay() -> None:
    text = kernel(SCALED, grid="(x.shape[0],)")
    (name,) = re.findall(r"^def (\w+)\(x", text, re.MULTILINE)[:1]
    assert "is handed on at line" in refusal("rows-per-block", f"{text}\nBY_NAME = [{name}]\n")


def test_a_grid_of_its_own_may_have_a_name() -> None:
    text = kernel(SCALED, grid="grid").replace(
        "    ct.launch", "    grid = (len(x), 2)\n    ct.launch"
    )
    text = text.replace("len(x)", "x.shape[0]")
    assert "grid = (ct.cdiv(x.shape[0], 4), 2)" in apply("rows-per-block", text, ROWS)
    assert "shows no grid of its own" in refusal("rows-per-block", text + "    print(grid)\n")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("grid=", "grid="), ""),
        (("(row, i), (1, 8)", "(row, i), (1, 8), check_bounds=True"), ""),
        (("axis=1, keepdims=True", "axis=0, keepdims=True"), "does not reduce along the row"),
        (("axis=1, keepdims=True", "axis=1"), "does not reduce along the row"),
        (("w * ct.sum", "row * ct.sum"), "uses `row` for more than the row of a tile"),
        (
            ("row = ct.bid(0)", "row = ct.bid(0)\n    row = row + 1"),
            "uses `row` for more than the row",
        ),
        (("row = ct.bid(0)", "row = ct.bid(0) + 1"), "its block is not kept under a name"),
        (("(row, 0), w *", "(0, 0), w *"), "for more than the row|stores something else"),
        (("(row, i), (1, 8)", "(row, i), (2, 8)"), "is not one row"),
        (("(row, i), (1, 8)", "(row, i), (1, 8), check_bounds=False"), "does not check bounds"),
        (("(0, 0), (1, 8)", "(0, 0), (4, 8)"), "is not one row"),
        (("w * ct", "ct.cumsum(w, 1) * ct"), "calls `ct.cumsum`, which may mix rows"),
        (("w * ct", "ct.reshape(w, (8, 1)) * ct"), "calls `ct.reshape`, which may mix rows"),
        (("(x.shape[0],)", "(n,)"), "nothing says that the grid at line 13 has a block for each"),
    ],
)
def test_kernels_whose_rows_stay_alone(change: tuple[str, str], reason: str) -> None:
    text = kernel(SCALED, grid="(x.shape[0],)").replace(*change)
    if not reason:
        assert variants("rows-per-block", text) == [{"rows": rows} for rows in (2, 4, 8)]
        return
    assert any(part in refusal("rows-per-block", text) for part in reason.split("|"))


# --- layouts ------------------------------------------------------------------------------------

PERSISTENT = (
    "import cuda.tile as ct\nimport torch\n\n\n@ct.kernel\n"
    "def k({signature}):\n"
    "    tile = ct.load(x, (ct.bid(0), ct.bid(1)), (1, 16), padding_mode=ct.PaddingMode.ZERO)\n"
    "    ct.store(y, (ct.bid(0), ct.bid(1)), tile + tile)\n\n\n"
    "def run(x):\n    y = torch.empty_like(x)\n"
    "    grid = (x.shape[0], ct.cdiv(x.shape[1], 16))\n"
    "    ct.launch(torch.cuda.current_stream(), grid, k, {given})\n    return y\n"
)


@pytest.mark.parametrize(
    ("signature", "taken"),
    [
        ("\n    x,  # read\n    y,\n", "\n    x,  # read\n    y,\n    EXTRA,\n"),
        ("\n    x,\n    y,  # written\n", "\n    x,\n    y,  # written\n    EXTRA,\n"),
        ("\n    x,\n    y\n", "\n    x,\n    y,\n    EXTRA\n"),
        ("\n    x,\n    y  # written\n", "\n    x,\n    y,  # written\n    EXTRA\n"),
        ("\n    x, y,\n", "\n    x, y, EXTRA,\n"),
        ("\n    x, y  # both\n", "\n    x, y,  # both\n    EXTRA\n"),
        ("x,\n      y", "x,\n      y,\n      EXTRA"),
    ],
)
def test_parameters_that_blocks_get_are_laid_out_as_the_others(signature: str, taken: str) -> None:
    text = PERSISTENT.format(signature=signature, given="(x, y)")
    new = apply("persistent-blocks", text, {"blocks_per_sm": 1})
    line = taken[: taken.index("EXTRA")].rpartition("\n")[2]
    between = ", " if "x, y" in signature else f",\n{line}"
    assert f"def k({taken.replace('EXTRA', f'n_blocks_0{between}n_blocks_1')}):\n" in new
    assert not any(line.endswith(" ") for line in new.splitlines())


@pytest.mark.parametrize(
    ("given", "handed"),
    [
        (
            "(\n        x,  # read\n        y,\n    )",
            "(\n        x,  # read\n        y,\n        n_blocks_0,\n        n_blocks_1,\n    )",
        ),
        (
            "(\n        x,\n        y  # written\n    )",
            "(\n        x,\n        y,  # written\n        n_blocks_0,\n        n_blocks_1\n    )",
        ),
        (
            "[\n        x,  # read\n        y,\n    ]",
            "[\n        x,  # read\n        y,\n        n_blocks_0,\n        n_blocks_1,\n    ]",
        ),
        ("[x, y]", "[x, y, n_blocks_0, n_blocks_1]"),
    ],
)
def test_arguments_that_blocks_get_are_laid_out_as_the_others(given: str, handed: str) -> None:
    text = PERSISTENT.format(signature="x, y", given=given)
    new = apply("persistent-blocks", text, {"blocks_per_sm": 1})
    assert f"k, {handed})\n" in new
