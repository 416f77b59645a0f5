"""What a tuner's trials change: memory that a kernel reads and writes, under whatever names."""

from __future__ import annotations

import pytest

from agent.syntax import Source
from tests.playbook.test_triton_traps import HEAD, apply

HALVED = (
    HEAD
    + """\
@triton.jit
def halve_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, x * 0.5, mask=offsets < n)


def halve(x, {parameter}):
    {line}
    n, size = x.numel(), 1024
    halve_kernel[(triton.cdiv(n, size),)]({read}, y, n, BLOCK=size)
    return y
"""
)


def halved(line: str, read: str = "x", parameter: str = "y=None") -> str:
    text = HALVED.replace("{line}", line).replace("{read}", read)
    return text.replace("{parameter}", parameter)


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("pass", "x"),
        ("if y is None:\n        y = torch.empty_like(x)", "x"),
        ("y = x if y else torch.empty_like(x)", "x"),
        ("y = x", "x.view(-1)"),
        ("flat, y = x.flatten(), x", "flat"),
        ("y, x = x, x[0]", "x"),
        ("y = torch.empty_like(x)\n    x = y.view(-1)", "x"),
        ("y = torch.empty_like(x)\n    held = []\n    held.append(y)", "held[0]"),
        ("y = torch.full(x.shape, 0.0, out=x)", "x"),
    ],
)
def test_an_output_that_may_be_the_input_is_restored(line: str, read: str) -> None:
    assert 'restore_value=["y_ptr"]' in apply("add-autotune", halved(line, read))


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("y = torch.empty_like(x)", "x"),
        ("y = x.new_empty(x.shape).view(-1)", "x.view(-1)"),
        ("y = torch.zeros(x.shape, device=x.device)[0]", "x[0]"),
        ("copy = x.clone()\n    y = x", "copy"),
        ("y = torch.empty_like(x)", "None"),
        ("y = torch.empty_like(x)", "torch.zeros_like(y)"),
    ],
)
def test_an_output_that_is_new_is_not(line: str, read: str) -> None:
    tuned = apply("add-autotune", halved(line, read))
    assert "restore_value" not in tuned
    assert "@triton.autotune" in tuned
    assert Source(tuned).functions
