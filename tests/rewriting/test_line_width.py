"""Edits are laid out as their file is: lines that became too long are broken, and no others."""

from __future__ import annotations

import ast
import textwrap

import pytest

from agent.rewriting.common.line_width import within_width


def laid_out(before: str, after: str) -> str:
    """What becomes of an edit; the same program in any case."""
    before, after = (textwrap.dedent(text).lstrip("\n") for text in (before, after))
    found = within_width(before, after)
    assert ast.dump(ast.parse(found)) == ast.dump(ast.parse(after))
    return found


LOAD = """
def kernel(x_ptr, n):
    for start in range(0, n, 128):
        x = tl.load(x_ptr + start + offsets, mask=start + offsets < n, other=0.0{more})
"""


def test_arguments_go_onto_a_line_of_their_own() -> None:
    found = laid_out(LOAD.format(more=""), LOAD.format(more=", volatile=False"))
    assert found.splitlines()[2:] == [
        "        x = tl.load(",
        "            x_ptr + start + offsets, mask=start + offsets < n, other=0.0, volatile=False",
        "        )",
    ]


def test_or_onto_one_each_where_that_is_too_long_as_well() -> None:
    policy = ', eviction_policy="evict_first", cache_modifier=".cg"'
    found = laid_out(LOAD.format(more=""), LOAD.format(more=policy))
    assert found.splitlines()[2:] == [
        "        x = tl.load(",
        "            x_ptr + start + offsets,",
        "            mask=start + offsets < n,",
        "            other=0.0,",
        '            eviction_policy="evict_first",',
        '            cache_modifier=".cg",',
        "        )",
    ]


def test_a_file_with_wide_lines_has_wide_lines() -> None:
    wide = "# " + "x" * 115 + "\n"
    before, after = wide + LOAD.format(more=""), wide + LOAD.format(more=", volatile=False")
    assert within_width(before, after) == after


def test_what_was_only_moved_to_the_right_stays() -> None:
    before = (
        "x = tl.load(x_ptr + start + offsets, mask=start + offsets < n, other=0.0, volatile=0)\n"
    )
    after = f"for start in range(0, n, 128):\n    if start:\n        {before}"
    assert within_width(before, after) == after


def test_an_argument_behind_others_on_a_line_of_theirs_goes_below_it() -> None:
    text = """
    kernel[grid](
        x, y, rows, columns, x.stride(0), y.stride(0), BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N{more}
    )
    """
    found = laid_out(text.format(more=""), text.format(more=", num_warps=8"))
    assert found.splitlines() == [
        "kernel[grid](",
        "    x, y, rows, columns, x.stride(0), y.stride(0), BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N,",
        "    num_warps=8",
        ")",
    ]


def test_a_comment_behind_a_line_that_fits_without_it_goes_above() -> None:
    text = """
    def kernel(x):
        # Of one row.
        y = tl.exp2(x{scale}) / total  # the share of each element in what the row comes to
    """
    found = laid_out(text.format(scale=""), text.format(scale=" * LOG2_E - largest"))
    assert found.splitlines()[1:] == [
        "    # Of one row.",
        "    # the share of each element in what the row comes to",
        "    y = tl.exp2(x * LOG2_E - largest) / total",
    ]


FLOATS = [f"{name}.dtype != ct.float64" for name in ("x", "weight", "bias", "residual")]
OR = "ct.cdiv(m, tile_m) * tile_m > x.shape[0] or ct.cdiv(n, tile_n) * tile_n > x.shape[1]"
SUM = "tl.load(x_ptr + offsets, mask=mask).to(tl.float32) * tl.load(y_ptr + offsets, mask=mask)"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            f"checked = {OR}",
            ["checked = (", f"    {OR}", ")"],
        ),
        (
            f"is_checked = {OR} or given",
            [
                "is_checked = (",
                "    ct.cdiv(m, tile_m) * tile_m > x.shape[0]",
                "    or ct.cdiv(n, tile_n) * tile_n > x.shape[1]",
                "    or given",
                ")",
            ],
        ),
        (
            f"total += {SUM} - other",
            [
                "total += (",
                "    tl.load(x_ptr + offsets, mask=mask).to(tl.float32)",
                "    * tl.load(y_ptr + offsets, mask=mask)",
                "    - other",
                ")",
            ],
        ),
        (
            f"    return ({SUM} * other)",
            [
                "    return (",
                "        tl.load(x_ptr + offsets, mask=mask).to(tl.float32)",
                "        * tl.load(y_ptr + offsets, mask=mask)",
                "        * other",
                "    )",
            ],
        ),
        (
            f"if {OR}:  # some\n    pass",
            ["if (", f"    {OR}", "):  # some", "    pass"],
        ),
        (
            f"mode: Mode = ct.RoundingMode.APPROX if {' and '.join(FLOATS)} else None",
            [
                "mode: Mode = (",
                "    ct.RoundingMode.APPROX",
                f"    if {FLOATS[0]}",
                *(f"    and {each}" for each in FLOATS[1:]),
                "    else None",
                ")",
            ],
        ),
        (
            f"is_near = a <= {'x' * 36} < {'y' * 37}",
            ["is_near = (", f"    a <= {'x' * 36} < {'y' * 37}", ")"],
        ),
        (
            "x = scale * tl.load(x_ptr + start + offsets, mask=start + offsets < n, other=0.0, "
            "volatile=1)",
            [
                "x = scale * tl.load(",
                "    x_ptr + start + offsets, mask=start + offsets < n, other=0.0, volatile=1",
                ")",
            ],
        ),
    ],
    ids=["or", "two or", "sum", "product", "condition", "choice", "comparison", "one call"],
)
def test_a_value_goes_into_parentheses_at_its_operators(line: str, expected: list[str]) -> None:
    """As formatters do it: no call is opened for the sake of what stands beside it."""
    head = "def f():\n" if line.startswith("    ") else ""
    assert laid_out(f"{head}    pass\n" if head else "pass\n", f"{head}{line}\n").splitlines() == [
        *head.splitlines(),
        *expected,
    ]


def test_an_argument_goes_into_parentheses_at_its_operators() -> None:
    masks = [f"({name} < tl.load(bounds_ptr + {name}))" for name in ("rows", "columns", "depths")]
    text = f"x = tl.load(x_ptr + offsets, mask={' & '.join(masks)}, other=0.0)\n"
    assert laid_out("pass\n", text).splitlines() == [
        "x = tl.load(",
        "    x_ptr + offsets,",
        "    mask=(",
        f"        {masks[0]}",
        f"        & {masks[1]}",
        f"        & {masks[2]}",
        "    ),",
        "    other=0.0,",
        ")",
    ]


BLOCKS = "triton.cdiv(the_map.number_of_rows_of_it, block_rows * programs)"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            f"kernel[({BLOCKS}, experts)](x, y)",
            [f"kernel[({BLOCKS}, experts)](", "    x, y", ")"],
        ),
        (
            f"some_kernel[({BLOCKS}, experts)](\n    x,\n)",
            ["some_kernel[(", f"    {BLOCKS}, experts", ")](", "    x,", ")"],
        ),
        (f"grid = ({BLOCKS}, {BLOCKS})", ["grid = (", *[f"    {BLOCKS},"] * 2, ")"]),
        (
            f"the_grid_of_all_rows = ({BLOCKS},)",
            ["the_grid_of_all_rows = (", f"    {BLOCKS},", ")"],
        ),
        (f"the_grid = [{BLOCKS}, experts, 1]", ["the_grid = [", f"    {BLOCKS}, experts, 1", "]"]),
    ],
    ids=["launch", "grid", "tuple", "one element", "list"],
)
def test_a_tuple_is_opened_before_the_calls_in_it(line: str, expected: list[str]) -> None:
    assert laid_out("pass\n", f"{line}\n").splitlines() == expected


def test_a_cast_behind_a_call_stays_whole() -> None:
    given = "rows_ptr + dense_row * experts_per_token + top_index, mask=row_mask"
    assert laid_out("pass\n", f"row = tl.load({given}).to(tl.int32)\n").splitlines() == [
        "row = tl.load(",
        f"    {given}",
        ").to(tl.int32)",
    ]


def test_tabs_stay_tabs() -> None:
    load = "tl.load(x_ptr + start + offsets, mask=start + offsets < n, other=0.0{more})"
    text = f"def f(x):\n\tif x:\n\t\ty = {load}\n"
    found = laid_out(text.format(more=""), text.format(more=', eviction_policy="evict_last"'))
    lines = found.splitlines()
    assert lines[2] == "\t\ty = tl.load(" and lines[-1] == "\t\t)"
    assert all(line.startswith("\t\t\t") for line in lines[3:-1])


@pytest.mark.parametrize(
    "line",
    [
        f'print(f"{{call({", ".join(["argument"] * 12)})}} and more text")',
        f'"{"a text that nobody can break " * 4}"',
        f"value = call({'one_argument_that_is_as_long_as_the_line_' * 3})",
    ],
    ids=["within a string", "a string", "one argument"],
)
def test_what_cannot_be_broken_stays(line: str) -> None:
    assert within_width("pass\n", f"{line}\n") == f"{line}\n"
