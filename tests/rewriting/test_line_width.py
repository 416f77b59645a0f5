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
