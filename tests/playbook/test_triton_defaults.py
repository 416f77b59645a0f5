"""A kernel whose last parameter has a default: what is appended to its parameters has one, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.playbook.base import Optimization
from agent.syntax import Source
from tests.support.triton_numbers import disagreement

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

PASSES = """\
import torch
import triton
import triton.language as tl


@triton.jit
def norm(x_ptr, y_ptr, n, BLOCK: tl.constexpr = 64):
    x_ptr += tl.program_id(0) * n
    y_ptr += tl.program_id(0) * n
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(0, n, BLOCK):
        at = i + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n, other=0.0)
        total += x * x
    scale = 1 / tl.sqrt(tl.sum(total) / n + 1e-5)
    for i in range(0, n, BLOCK):
        at = i + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n, other=0.0)
        tl.store(y_ptr + at, x * scale, mask=at < n)


def f(x):
    y = torch.empty_like(x)
    norm[(x.shape[0],)](x, y, x.shape[1])
    return y
"""
ROWS = """\
import torch
import triton
import triton.language as tl


@triton.jit
def half(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr = 256):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < n, other=0.0)
    largest = tl.max(x, axis=0)
    tl.store(y_ptr + row * stride + cols, x - largest, mask=cols < n)


def f(x):
    y = torch.empty_like(x)
    n_rows, n = x.shape
    block = triton.next_power_of_2(n)
    half[(n_rows,)](x, y, x.stride(0), n, BLOCK=block)
    return y
"""
SHAPES = [[[3, 100]], [[5, 64]], [[2, 200]]]


@pytest.mark.parametrize(
    ("name", "text", "added"),
    [
        ("row-in-registers", PASSES, "BLOCK: tl.constexpr = 64, ROW: tl.constexpr = None"),
        ("rows-per-program", ROWS, "ROWS: tl.constexpr = None"),
    ],
)
def test_what_is_appended_has_a_default_too(
    name: str, text: str, added: str, tmp_path: Path
) -> None:
    entry = playbook.get(name)
    assert isinstance(entry, Optimization)
    given = Subject(Source(text), KernelClass.MEMORY, Hardware())
    after = entry.apply(given, entry.variants(given)[0])
    assert added in after
    assert disagreement("f", SHAPES, text, [after], True, tmp_path) == ""


def test_an_exponential_in_a_helper_is_named() -> None:
    helper = "@triton.jit\ndef grown(x):\n    return tl.exp(x)\n\n\n"
    text = ROWS.replace("@triton.jit", f"{helper}@triton.jit").replace(
        "x - largest", "grown(x - largest)"
    )
    entry = playbook.get("folded-exp2")
    assert isinstance(entry, Optimization)
    with pytest.raises(NotApplicable, match=r"half calls tl\.exp in grown, and what a helper"):
        entry.apply(Subject(Source(text), KernelClass.MEMORY, Hardware()), {})
