"""Parameters that are annotated as pointers are what they are used as, or left alone."""

from __future__ import annotations

import pytest

from agent.porting import NotPortable, port

FILE = """\
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr: {kind}, y_ptr: {kind}, idle: {kind}, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


def scaled(x, y):
    scale_kernel[(1,)](x, y, y, x.numel(), BLOCK=8)
"""


@pytest.mark.parametrize(
    "kind", ["tl.pointer_type", "tl.pointer_type(tl.float32)", "torch.Tensor", '"*fp32"']
)
def test_they_are_ported_as_without(kind: str) -> None:
    plain = FILE.replace(": {kind}", "")
    made = port(FILE.format(kind=kind), "k.py")
    assert made.text == port(plain, "k.py").text


def test_another_annotation_is_refused() -> None:
    with pytest.raises(NotPortable, match=r"a parameter with this annotation \(idle\)"):
        port(FILE.format(kind="tl.float64"), "k.py")
