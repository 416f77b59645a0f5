"""One integer that sets the block of several kernels, each launched by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.playbook import apply, refusal
from tests.support.triton_numbers import disagreement

TEXT = """\
import torch
import triton
import triton.language as tl

SIZE = 1024


@triton.jit
def tripled(x_ptr, places, mask):
    return 3 * tl.load(x_ptr + places, mask=mask)


@triton.jit
def block_of(start, LENGTH: tl.constexpr):
    return start + tl.arange(0, LENGTH)


@triton.jit
def add_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    tl.store(y_ptr + places, tl.load(x_ptr + places, mask=mask) + 2, mask=mask)


@triton.jit
def mul_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    {places}
    mask = places < n
    tl.store(y_ptr + places, tripled(x_ptr, places, mask), mask=mask)


def both(x):
    y, z = torch.empty_like(x), torch.empty_like(x)
    n = x.numel()
    grid = (triton.cdiv(n, SIZE),)
    add_kernel[grid](x, y, n, BLOCK=SIZE)
    mul_kernel[grid](y, z, n, BLOCK=SIZE)
    return z
"""
SIZED = {
    "its own": "places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
    "another name": "SIDE: tl.constexpr = BLOCK\n"
    "    places = tl.program_id(0) * SIDE + tl.arange(0, SIDE)",
    "a helper's": "places = tl.program_id(0) * BLOCK + block_of(0, BLOCK)",
}
FIXED = "places = tl.program_id(0) * 1024 + tl.arange(0, 1024)"


@pytest.mark.parametrize("sized", SIZED)
def test_it_changes_where_each_has_tiles_of_it(sized: str, tmp_path: Path) -> None:
    text = TEXT.format(places=SIZED[sized])
    new = apply("block-size", text, {"BLOCK": 512})
    assert new == text.replace("SIZE = 1024", "SIZE = 512")
    pytest.importorskip("triton", reason="triton is not installed")
    assert not disagreement("both", [[[5000]], [[31, 7]]], text, [new], False, tmp_path)


def test_it_stays_where_one_has_tiles_of_a_size_of_its_own(tmp_path: Path) -> None:
    """The grid would go by it, and leave elements to no program, or to many."""
    text = TEXT.format(places=FIXED)
    why = "BLOCK of add_kernel: mul_kernel shares it, and no tile there goes by it"
    assert refusal("block-size", text) == why
    assert refusal("blocks-and-warps", text) == why
    pytest.importorskip("triton", reason="triton is not installed")
    wrong = text.replace("SIZE = 1024", "SIZE = 2048")
    assert disagreement("both", [[[5000]]], text, [wrong], False, tmp_path)
