"""Parameters that no launch can give: told before anything is tried."""

from __future__ import annotations

import pytest

from agent.analysis.triton.signatures import unlaunchable
from agent.syntax import Source

TEXT = """\
import triton
import triton.language as tl


@triton.jit
def total(first, *others):
    return first


@triton.jit
def double_kernel(x_ptr, n, {parameters}):
    tl.store(x_ptr, n)


def double(x):
    double_kernel[(1,)](x, 1, BLOCK=8, **{{"num_warps": 2}})
"""


@pytest.mark.parametrize(
    ("parameters", "interpreted", "told"),
    [
        ("BLOCK: tl.constexpr", True, ""),
        ("*, BLOCK: tl.constexpr", True, ""),
        ("**meta", True, "line 11: double_kernel takes **meta, and Triton makes no kernel of such"),
        ("**META", False, "line 11: double_kernel takes **META, and Triton makes no kernel of"),
        ("*rest", True, "line 11: double_kernel takes *rest, which Triton's interpreter does not"),
        ("*rest", False, ""),
    ],
)
def test_what_no_launch_can_give(parameters: str, interpreted: bool, told: str) -> None:
    """What kernels call may take any number; so may a launch."""
    source = Source(TEXT.format(parameters=parameters), "double.py")
    found = unlaunchable(source, interpreted=interpreted) or ""
    assert found.startswith(told) and bool(found) == bool(told)
