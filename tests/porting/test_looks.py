"""What a reader of the port still finds: comments, strings, and a grid that is evaluated once."""

import re

import pytest

from agent.porting import port

FILE = """\
# The licence.
import torch

# why Triton
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)  # the offsets
    # TODO: rename it
    p = x_ptr  # the input
    # read it
    x = tl.load(
        p + i,  # where
        mask=i < n,  # the rest is none
        other=0.0,
    )
    if (n > 3  # enough
            and n < 5):
        # nothing to see
        tl.debug_barrier()  # really
    elif (n // 2  # half
            > 7):
        x = x + 1  # one more
    tl.store(out_ptr + i, x, mask=i < n)  # type: ignore
    # seen
    tl.debug_barrier()  # by all


def run(x):
    out = torch.empty_like(x)
    # the grid
    kernel[(triton.cdiv(x.numel(), 8),  # blocks
            1)](
        x,  # input
        out,
        x.numel(),
        BLOCK=8,  # block
    )  # behind
    return out
"""
OF_TOOLS = ("type: ignore",)


def test_no_comment_is_lost() -> None:
    made = port(FILE, "kernel.py").text
    comments = [c for c in re.findall(r"# (.*)", FILE) if c not in OF_TOOLS]
    assert len(comments) == 20
    places = [made.find(f"# {comment}\n") for comment in comments]
    assert -1 not in places
    assert made.index("# TODO: rename it\n    # the input\n    # read it\n    # where\n") > 0
    assert made.index("        # nothing to see\n        # really\n        pass\n") > 0
    assert made.index("    # seen\n    # by all\n") > made.index("ct.scatter(")


@pytest.mark.parametrize(
    ("grid", "written"),
    {
        "x.shape": "blocks = x.shape blocks = tuple(blocks({",
        "grids.pop()": "blocks = grids.pop() blocks = tuple(blocks({",
        "grid": "blocks = tuple(grid({",
        "(n,)": "blocks = (n,) if 0 not in blocks:",
        "n,": "blocks = (n,) if 0 not in blocks:",
        "n, 1": "blocks = (n, 1) if 0 not in blocks:",
    }.items(),
)
def test_a_grid_is_evaluated_once(grid: str, written: str) -> None:
    before, _, behind = FILE.rpartition("    # the grid")
    tail = behind.partition("return out")[2]
    text = f"{before}    kernel[{grid}](x, out, n, BLOCK=8)\n    return out{tail}"
    made = port(text.replace("def run(x)", "def run(x, n, grid)"), "kernel.py").text
    assert "".join(written.split()) in "".join(made.split())  # on however many lines


def test_a_string_of_a_launch_stays_as_it_is() -> None:
    text = FILE.replace("        x.numel(),\n", '        SIZES["a   b"],\n')
    assert '  SIZES["a   b"],\n' in port(text, "kernel.py").text
