"""Blocks that a helper, or a `while` loop, goes over by their number or reduces one by one."""

from __future__ import annotations

import pytest

from agent.analysis.common.constant_flow import Flow
from agent.analysis.common.needed_sizes import needed_size
from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source

COPY = """
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        tl.store(z_ptr + cols, tl.load(x_ptr + cols, mask=cols < n), mask=cols < n)
"""
HELPER = f"""
import triton
import triton.language as tl

@triton.jit
def row(x_ptr, s_ptr, y_ptr, n, B: tl.constexpr):
HELPS
    return 0

@triton.jit
def kernel(x_ptr, s_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
{COPY}
    row(x_ptr, s_ptr, y_ptr, n, SIZE)
"""
COUNTED = """\
    for k in range(0, tl.cdiv(n, B)):
        cols = k * B + tl.arange(0, B)
        x = tl.load(x_ptr + cols, mask=cols < n) * tl.load(s_ptr + k)
        tl.store(y_ptr + cols, x, mask=cols < n)"""
REDUCED = """\
    for start in range(0, n, B):
        cols = start + tl.arange(0, B)
        x = tl.load(x_ptr + cols, mask=cols < n, other=0.0)
        tl.store(y_ptr + cols, x / tl.max(x, 0), mask=cols < n)"""
COPIED = COUNTED.replace(" * tl.load(s_ptr + k)", "")
WHILE = f"""
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, s_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
{COPY}
    done = 0
    k = 0
    while done < n:
        cols = done + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n) * tl.load(s_ptr + k)
        tl.store(y_ptr + cols, x, mask=cols < n)
        STEP
        k += 1
"""


def asked(text: str) -> str:
    source = Source(text)
    kernel = next(k for k in TRITON.kernels(source) if k.name == "kernel")
    return needed_size(Flow(TRITON, source, kernel, "BLOCK")) or ""


@pytest.mark.parametrize("size", ["BLOCK", "B=BLOCK", "BLOCK * 2"])
@pytest.mark.parametrize(
    ("helps", "reason"),
    [(COUNTED, "counts its blocks"), (REDUCED, "stores what it reduces in that round")],
    ids=["counted", "reduced"],
)
def test_a_helper_s_loop_is_asked_as_the_kernel_s_own(helps: str, reason: str, size: str) -> None:
    assert reason in asked(HELPER.replace("HELPS", helps).replace("SIZE", size))


@pytest.mark.parametrize(("helps", "size"), [(COPIED, "BLOCK"), (COUNTED, "64"), (REDUCED, "64")])
def test_a_helper_that_keeps_nothing_of_a_block_or_has_its_own_size(helps: str, size: str) -> None:
    assert asked(HELPER.replace("HELPS", helps).replace("SIZE", size)) == ""


@pytest.mark.parametrize("step", ["done += BLOCK", "done = done + BLOCK", "done = BLOCK + done"])
def test_a_while_that_goes_on_by_it(step: str) -> None:
    assert "the `while` at line 14 goes on by it" in asked(WHILE.replace("STEP", step))


def test_a_while_that_goes_on_by_something_else() -> None:
    assert (
        asked(WHILE.replace("STEP", "done += 64").replace("done + tl.arange(0, BLOCK)", "done"))
        == ""
    )
