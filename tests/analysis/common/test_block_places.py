"""Results of Triton kernels that depend on which elements form a block."""

from __future__ import annotations

import pytest

from agent.analysis.common.block_numbers import needed_size
from agent.analysis.common.constant_flow import Flow
from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source

KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, w_ptr, n, seed, BLOCK: tl.constexpr, SUB: tl.constexpr):
    pid = tl.program_id(0)
    idx = tl.arange(0, BLOCK)
    offs = pid * BLOCK + idx
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    LINES
    tl.store(y_ptr + offs, x, mask=offs < n)
"""


def reason(lines: str) -> str | None:
    """Why BLOCK may not be another one."""
    source = Source(KERNEL.replace("LINES", lines.replace("\n", "\n    ")))
    (kernel,) = TRITON.kernels(source)
    return needed_size(Flow(TRITON, source, kernel, "BLOCK"))


@pytest.mark.parametrize("lines", ["x = tl.flip(x, 0)", "x = tl.gather(x, tl.load(w_ptr + offs), 0)"])
def test_elements_that_change_places_within_a_block_need_its_size(lines: str) -> None:
    assert "moves elements within each block" in (reason(lines) or "")
