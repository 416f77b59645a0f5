"""Where kernels ask which program they are, and what is said where that is not followed."""

from __future__ import annotations

import pytest

from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.program_ids import program_indices
from agent.syntax import Source

FILE = """\
import triton
import triton.language as tl
import library as ext
from library import program_id


@triton.jit
def place(axis: tl.constexpr):
    return {helper}


@triton.jit
def kernel(x, n):
    row = tl.program_id(1)
    tl.store(x + row * n, {asked})
"""


def axes(asked: str, helper: str = "axis") -> list[int]:
    source = Source(FILE.format(asked=asked, helper=helper))
    kernel = next(k for k in TRITON.kernels(source) if k.name == "kernel")
    return [index.axis for index in program_indices(source, kernel)]


def test_each_question_is_found() -> None:
    assert axes("n") == axes("place(1)") == [1]
    assert axes("tl.program_id(axis=0)") == [1, 0]


@pytest.mark.parametrize(
    ("asked", "helper", "reason"),
    [
        ("ext.program_id(0)", "1", "asks through `ext.program_id`, which is not followed"),
        ("program_id(0)", "1", "asks through `program_id`, which is not followed"),
        ("ext.num_programs(0)", "1", "asks through `ext.num_programs`, which is not followed"),
        ("place(0)", "program_id(axis)", "line 9 of place asks through `program_id`"),
        ("place(0)", "tl.program_id(axis)", "line 9 of place deals with the grid itself"),
        ("tl.program_id(n)", "1", "on a computed axis"),
    ],
)
def test_what_is_not_followed_is_said(asked: str, helper: str, reason: str) -> None:
    with pytest.raises(NotApplicable) as refused:
        axes(asked, helper)
    assert reason in str(refused.value)
