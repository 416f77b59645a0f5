"""Kernels that could be one: launched one after the other, and not one in place of the other."""

from __future__ import annotations

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.playbook.base import Advice
from agent.syntax import Source

KERNELS = """\
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + places, 2 * tl.load(x_ptr + places, mask=places < n), mask=places < n)


@triton.jit
def shift_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + places, 2 + tl.load(x_ptr + places, mask=places < n), mask=places < n)


def f(x, y, z, shifts):
"""
SCALE = "scale_kernel[(8,)](x, y, x.numel(), BLOCK=128)"
SHIFT = "shift_kernel[(8,)](y, z, x.numel(), BLOCK=128)"


def fits(body: str) -> str:
    entry = playbook.find("fused-kernels")
    assert isinstance(entry, Advice)
    return entry.fits(Subject(Source(KERNELS + body), KernelClass.MEMORY, Hardware(sm=90)))


@pytest.mark.parametrize(
    "body",
    [
        f"    {SCALE}\n    {SHIFT}\n",
        f"    if shifts:\n        {SCALE}\n        {SHIFT}\n",
        f"    if shifts:\n        {SCALE}\n    {SHIFT}\n",
        f"    try:\n        {SCALE}\n    finally:\n        {SHIFT}\n",
    ],
)
def test_one_launch_after_another(body: str) -> None:
    assert fits(body) == "f launches scale_kernel and shift_kernel, both with `y`"


@pytest.mark.parametrize(
    "body",
    [
        f"    if shifts:\n        {SCALE}\n    else:\n        {SHIFT}\n",
        f"    if shifts:\n        {SCALE}\n    elif x.numel() > 9:\n        {SHIFT}\n",
        f"    if z:\n        pass\n    elif shifts:\n        {SCALE}\n    else:\n        {SHIFT}\n",
        f"    try:\n        {SCALE}\n    except RuntimeError:\n        {SHIFT}\n",
        f"    {SCALE}\n",
    ],
)
def test_one_launch_in_place_of_another(body: str) -> None:
    with pytest.raises(NotApplicable, match="no function launches two kernels"):
        fits(body)
