"""Grids that are tuples without parentheses."""

from __future__ import annotations

import libcst as cst
import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, Subject
from agent.analysis.triton.dialect import TRITON
from agent.playbook.base import Optimization
from agent.syntax import Source
from agent.syntax.tuples import parse

SQUARE = """\
import torch
import triton
import triton.language as tl


@triton.jit
def square_kernel(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = tl.program_id(0) * stride + cols
    x = tl.load(x_ptr + at, mask=cols < n)
    tl.store(y_ptr + at, x * x, mask=cols < n)


def square(x):
    y = torch.empty_like(x)
    rows, n = x.shape
    block = 1024
    square_kernel[GRID](x, y, x.stride(0), n, BLOCK=block, num_warps=4)
    return y
"""


@pytest.mark.parametrize(
    "text", ["k[a, b](x)\n", "k[ a ,](x)\n", "k[\n    a,\n    b,\n](x)\n", "k[(a, b)](x)\n"]
)
def test_the_text_stays_and_the_index_is_one_tuple(text: str) -> None:
    module = parse(text)
    assert module.code == text
    match module.body[0]:
        case cst.SimpleStatementLine(
            body=[cst.Expr(cst.Call(func=cst.Subscript(slice=[cst.SubscriptElement(index)])))]
        ):
            assert isinstance(index, cst.Index)
            assert isinstance(index.value, cst.Tuple)
        case other:
            pytest.fail(str(other))


@pytest.mark.parametrize("text", ["k[a](x)\n", "k[a:b, c](x)\n", "k[*a, b](x)\n", "x[a, b]\n"])
def test_others_stay_as_they_are(text: str) -> None:
    assert parse(text).deep_equals(cst.parse_module(text))


@pytest.mark.parametrize("grid", ["rows, triton.cdiv(n, block)", "rows, triton.cdiv(n, block),"])
def test_a_grid_without_parentheses_is_one(grid: str) -> None:
    source = Source(SQUARE.replace("GRID", grid))
    (kernel,) = TRITON.launched(source)
    assert len(kernel.launches) == 1
    same = Source(SQUARE.replace("GRID", f"({grid})"))
    for name in ("persistent-programs", "blocks-and-warps", "warps-and-stages", "even-blocks"):
        entry = playbook.get(name)
        assert isinstance(entry, Optimization)
        one, other = (Subject(each, KernelClass.MEMORY, Hardware()) for each in (source, same))
        assert entry.variants(one) == entry.variants(other)
        for params in entry.variants(one):
            written = entry.apply(one, params).replace(f"[{grid}]", f"[({grid})]")
            assert written == entry.apply(other, params)
