"""How the port is written: lines of a width, imports in their places, comments beside arguments."""

from __future__ import annotations

import ast

from agent.porting import port
from agent.porting.layout import laid_out

HEAD = """\
import math

import torch
import triton
import triton.language as tl

from project import other


@triton.jit
def kernel(x_ptr, y_ptr, n, stride_row, stride_column, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


"""
LAUNCHED = """\
def run(x, y, stride_row, stride_column):
    from triton import cdiv

    def grid(meta):
        return (cdiv(x.numel(), meta["BLOCK"]),)

    # the launch
    kernel[grid](
        x,  # what is read
        # the result
        y,
        x.numel(),
        # strides
        stride_row,
        stride_column,
        # as measured
        num_warps=4,  # of four
        BLOCK=8,
        # num_stages=2,
    )
"""
LONG = ("batch_number", "head_number", "row_number", "column_number", "extent_of_all")


def body(text: str) -> str:
    """What is written below the helpers of a port."""
    return text.partition("@ct.kernel")[2]


def test_a_comment_goes_with_its_argument_or_not_at_all() -> None:
    made = port(HEAD + LAUNCHED, "k.py").text
    assert (
        """\
    # the launch
    blocks = tuple(
"""
        in made
    )
    assert (
        """\
            (
                flat(x),  # what is read
                # the result
                flat(y),
                x.numel(),
                # strides
                stride_row,
                stride_column,
                8,
            ),
        )
"""
        in made
    )
    for gone in ("# as measured", "# of four", "# num_stages"):
        assert gone not in made


def test_what_a_grid_is_given_is_written_an_entry_a_line() -> None:
    made = port(HEAD + LAUNCHED, "k.py").text
    assert (
        """\
    blocks = tuple(
        grid(
            {
                "x_ptr": x,
                "y_ptr": y,
                "n": x.numel(),
"""
        in made
    )
    assert max(map(len, made.splitlines())) <= 100


def test_cuda_tile_is_imported_where_triton_was() -> None:
    made = port(HEAD + LAUNCHED, "k.py").text
    assert made.startswith(
        "import math\n\nimport torch\nimport cuda.tile as ct\n\nfrom project import other\n"
    )


def test_a_file_that_begins_with_triton_begins_with_cuda_tile() -> None:
    text = HEAD.partition("import triton\n")[2].replace("\nfrom project import other\n", "")
    made = port(f"import triton\n{text}", "k.py").text
    assert made.startswith("import torch\nimport cuda.tile as ct\n\n\n@ct.kernel")


def test_an_import_that_goes_leaves_no_blank_line_at_the_top_of_a_body() -> None:
    made = port(HEAD + LAUNCHED, "k.py").text
    assert "stride_column):\n    def grid(meta):" in made


def test_a_long_sum_has_parentheses_around_all_of_it_only() -> None:
    a, b, c, d, e = LONG
    text = f"total = {a} * {b} + {c} * {d} - {e} + ({a} - {b} - {c} - {d}) * {e} + {a} * {d}\n"
    made = laid_out(text, "")
    assert (
        made
        == f"""\
total = (
    {a} * {b}
    + {c} * {d}
    - {e}
    + ({a} - {b} - {c} - {d}) * {e}
    + {a} * {d}
)
"""
    )
    within = laid_out(f"f(x, {a} * {b} + {c} * {d} - {e} - {a} * {b} + {c} * {d}, mask=m)\n", "")
    assert (
        within
        == f"""\
f(
    x,
    {a} * {b}
    + {c} * {d}
    - {e}
    - {a} * {b}
    + {c} * {d},
    mask=m,
)
"""
    )


def test_every_long_expression_stays_what_it_was() -> None:
    a, b, c, d, e = LONG
    terms = f"{a} * {b} + {c} - ({d} - {e} - {a} * {b}) // {c} - {d} * ({e} + {a}) % {b}"
    for text in (
        f"x = f({terms} + {terms})[None, :]\n",
        f"x = {terms} if {a} > {b} else {terms}\n",
        f"x = f(y, {terms} if {a} > {b} else {terms}, z)\n",
        f"x = g({{'a': {terms}, **{a}, 'b': {b} + {c}}})\n",
        f"x = ({terms}) * ({terms}) | {a} << {b}\n",
        f"def f():\n    for i in j:\n        x = ({terms}, {terms} + {terms})\n",
    ):
        made = laid_out(text, "")
        assert ast.dump(ast.parse(made)) == ast.dump(ast.parse(text))
        assert max(map(len, made.splitlines())) <= 100
