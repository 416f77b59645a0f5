"""Operations of one element: of branches of which one is run, that with the most."""

from __future__ import annotations

import pytest

from agent.analysis.common.counts import Counts, count
from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source

TEXT = """
import triton
import triton.language as tl

@triton.jit
def squared(x):
    return x * x

@triton.jit
def act(x, which: tl.constexpr):
    if which == "cube":
        y = x * squared(x)
    elif which == "affine":
        y = x * 2 + 1 - x
    else:
        y = -x
    return y

@triton.jit
def kernel(x_ptr, y_ptr, n, which: tl.constexpr, scaled: tl.constexpr, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o, mask=o < n)
    BODY
    tl.store(y_ptr + o, y, mask=o < n)
"""


def counted(body: str, host: str = "") -> Counts:
    source = Source(TEXT.replace("BODY", body.replace("\n", "\n    ")) + host)
    return count(TRITON, source, next(k for k in TRITON.kernels(source) if k.name == "kernel"))


CHAIN = """if which == "one":
    y = x + 1
elif which == "three":
    y = x * x + x - 2
else:
    y = x / 2 + 1"""


@pytest.mark.parametrize(
    ("body", "operations"),
    [
        ("y = x * 2 + 1", 2),
        (CHAIN, 3),
        ("y = act(x, which)", 3),
        ("y = squared(x) + squared(x)", 3),
        ("y = x * x * x if scaled else x + 1", 2),
        ("y = x\nif scaled:\n    y = x * 2\nif which == 'one':\n    y = x * x", 2),
    ],
)
def test_the_branch_with_the_most_counts(body: str, operations: int) -> None:
    found = counted(body)
    assert (found.operations, found.accesses) == (operations, 2)


def test_what_is_left_out_is_said() -> None:
    assert counted(CHAIN).chose
    assert not counted("y = x\nif scaled:\n    y = x * 2").chose


def test_accesses_of_one_branch() -> None:
    found = counted("if scaled:\n    y = x * tl.load(y_ptr)\nelse:\n    y = x + tl.load(x_ptr)")
    assert found.accesses == 3


@pytest.mark.parametrize(
    ("which", "scaled", "operations"),
    [
        ('"one"', "True", 1),
        ("'three'", "False", 3),
        ('"other"', "False", 2),
        ("chosen", "False", 3),
    ],
)
def test_a_launch_that_tells_the_branch(which: str, scaled: str, operations: int) -> None:
    host = f"\ndef run(x, y, chosen):\n    kernel[(1,)](x, y, 8, {which}, {scaled}, BLOCK=8)\n"
    assert counted(CHAIN, host).operations == operations
    twice = counted("y = x\nif not scaled:\n    y = x * 2", host)
    assert twice.operations == (scaled == "False")


def test_launches_that_differ_tell_no_branch() -> None:
    host = "".join(
        f"\ndef run{which}(x, y):\n    kernel[(1,)](x, y, 8, '{which}', True, BLOCK=8)\n"
        for which in ("one", "other")
    )
    assert counted(CHAIN, host).operations == 3
