"""Loops that cover an axis whatever the block, and loops that only mention the block's size."""

from __future__ import annotations

import pytest

from agent.analysis.common.constant_flow import Flow
from agent.analysis.common.grid_coverage import loop_covers
from agent.analysis.common.provenance import tile_of
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source

KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, parts, M: tl.constexpr, N: tl.constexpr):
    pid = tl.program_id(0)
    LINES
"""
CAUSAL = """\
rows = pid * M + tl.arange(0, M)
total = tl.zeros((M,), dtype=tl.float32)
for start in range(0, (pid + 1) * M, N):
    at = start + tl.arange(0, N)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    total += tl.sum(tl.where(rows[:, None] >= at[None, :], x[None, :], 0.0), axis=1)
tl.store(y_ptr + rows, total, mask=rows < n)
"""


def source_of(lines: str) -> Source:
    return Source(KERNEL.replace("LINES", lines.replace("\n", "\n    ")))


def covers(lines: str, constant: str) -> bool:
    source = source_of(lines)
    (kernel,) = TRITON.kernels(source)
    return loop_covers(Flow(TRITON, source, kernel, constant))


BODY = "\n    at = {} + tl.arange(0, N)\n    tl.store(y_ptr + at, 1.0, mask=at < n)"


@pytest.mark.parametrize(
    "lines",
    [
        "for start in range(0, n, N):" + BODY.format("start"),
        "for j in range(tl.cdiv(n, N)):" + BODY.format("j * N"),
        "for start in range(pid * N, n, N * parts):" + BODY.format("start"),
        "step = N * parts\nfor start in range(pid * N, n, step):" + BODY.format("start"),
        "for j in range(tl.cdiv(n, N * parts)):" + BODY.format("(j * parts + pid) * N"),
        "for j in range(pid, tl.cdiv(n, N), parts):" + BODY.format("j * N"),
        "own = tl.cdiv(tl.cdiv(n, N), parts)\nfor j in range(own):" + BODY.format(
            "(pid * own + j) * N"
        ),
    ],
)  # fmt: skip
def test_a_loop_over_blocks_covers_its_axis(lines: str) -> None:
    assert covers(lines, "N")


def test_a_loop_that_goes_up_to_the_programs_own_block_does_not() -> None:
    assert covers(CAUSAL, "N") and not covers(CAUSAL, "M")
    one = CAUSAL.replace("M", "N").replace("(pid + 1) * N, N)", "pid * N + N, N)")
    assert not covers(one, "N")


def test_the_grid_has_to_be_computed_from_such_a_size() -> None:
    launch = "\n\ndef run(x, y, n):\n    m = 128\n    kernel[(GRID,)](x, y, n, 1, M=m, N=64)\n"
    for grid, applies in (("triton.cdiv(n, m)", True), ("triton.cdiv(n, 128)", False)):
        source = Source(source_of(CAUSAL).text + launch.replace("GRID", grid))
        (kernel,) = TRITON.kernels(source)
        assert tile_of(TRITON, source, kernel, "N").size == 64
        if applies:
            assert tile_of(TRITON, source, kernel, "M").size == 128
        else:
            with pytest.raises(NotApplicable, match="neither the grid nor a loop"):
                tile_of(TRITON, source, kernel, "M")


BRANCHES = """\
if parts:
    for start in range(0, n, N):
        at = start + tl.arange(0, N)
        tl.store(y_ptr + at, 1.0, mask=at < n)
{other}
    at = tl.arange(0, N)
    tl.store(y_ptr + at, 1.0, mask=at < n)
"""


@pytest.mark.parametrize("other", ["else:", "elif pid:"])
def test_a_branch_for_rows_that_fit_into_one_block(other: str) -> None:
    """As of a norm that goes over a row in passes only where it is longer than a block."""
    assert not covers(BRANCHES.format(other=other), "N")
    looped = BRANCHES.replace("    at = tl.arange(0, N)\n", "    at = M + parts\n")
    assert covers(looped.format(other=other), "N")


def test_a_branch_that_leaves_with_one_block() -> None:
    one = "if parts:\n    at = tl.arange(0, N)\n    tl.store(y_ptr + at, 1.0, mask=at < n)\n"
    loop = "for start in range(0, n, N):" + BODY.format("start")
    assert not covers(f"{one}    return\n{loop}", "N")
    assert covers(f"{one}{loop}", "N")
