"""What is told of products: they are slow where their operands are fp32."""

from __future__ import annotations

import pytest

from agent.porting import port

FILE = """\
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    a = tl.load(a_ptr + at)
    b = tl.load(b_ptr + at)
    tl.store(c_ptr + at, tl.dot({product}))


def run(a, b, c):
    kernel[(1,)](a, b, c, N=16)
"""


@pytest.mark.parametrize(
    ("product", "begin"),
    {
        "a, b": "where the operands of a product are fp32, it is computed in fp32",
        "a, b.to(tl.float32)": "products of fp32 tiles are computed in fp32",
        "a, b.to(tl.bfloat16)": None,
        "a.to(b_ptr.dtype.element_ty), b.to(tl.float16)": None,
        "a.to(tl.bfloat16), b.to(tl.bfloat16)": None,
        'a, b, input_precision="ieee"': None,
        "a.to(tl.float32), b.to(tl.float32), allow_tf32=False": None,
    }.items(),
)
def test_fp32_is_told_where_the_operands_may_be(product: str, begin: str | None) -> None:
    notes = [n for n in port(FILE.format(product=product), "k.py").notes if "tensor cores" in n]
    assert len(notes) == (begin is not None)
    assert all(note.startswith(str(begin)) for note in notes)
