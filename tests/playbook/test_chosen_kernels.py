"""Of several kernels of a file an optimization changes those that perf tests launch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, Subject
from agent.analysis.cutile.dialect import CUTILE
from agent.analysis.triton.dialect import TRITON
from agent.playbook import get
from agent.playbook.base import Optimization
from agent.syntax import Source
from agent.target import left_alone
from tests.support.history import LAUNCH

TRITON_FILE = """\
import torch
import triton
import triton.language as tl


@triton.jit
def forward_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * 2, mask=mask)


@triton.jit
def backward_kernel(dy_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(dx_ptr + offsets, tl.load(dy_ptr + offsets, mask=mask) * 2, mask=mask)


def forward(x):
    y = torch.empty_like(x)
    block = 512
    grid = (triton.cdiv(x.numel(), block),)
    forward_kernel[grid](x, y, x.numel(), BLOCK=block)
    return y


def backward(dy):
    dx = torch.empty_like(dy)
    block = 512
    grid = (triton.cdiv(dy.numel(), block),)
    backward_kernel[grid](dy, dx, dy.numel(), BLOCK=block)
    return dx
"""
CUTILE_FILE = """\
import cuda.tile as ct
import torch


@ct.kernel
def forward_kernel(x, y, TILE: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(y, (i,), ct.load(x, (i,), (TILE,)) * 2)


@ct.kernel
def backward_kernel(dy, dx, TILE: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(dx, (i,), ct.load(dy, (i,), (TILE,)) * 2)


def forward(x):
    y = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (x.numel() // 512,), forward_kernel, (x, y, 512))
    return y


def backward(dy):
    dx = torch.empty_like(dy)
    ct.launch(torch.cuda.current_stream(), (dy.numel() // 512,), backward_kernel, (dy, dx, 512))
    return dx
"""


def subject(text: str, *timed: str) -> Subject:
    return Subject(Source(text, "kernel.py", timed), KernelClass.MEMORY, Hardware(sm=90))


def changed(name: str, asked: Subject) -> set[str]:
    """The kernels whose definition or launch an entry changes, by its first variant."""
    entry = get(name)
    assert isinstance(entry, Optimization)
    after = entry.apply(asked, entry.variants(asked)[0])
    return {
        kernel
        for kernel in ("forward", "backward")
        if _part(asked.source.text, kernel) != _part(after, kernel)
    }


def _part(text: str, kernel: str) -> list[str]:
    """The blocks of a file that speak of a kernel."""
    return [block for block in text.split("\n\n\n") if f"{kernel}_kernel" in block]


@pytest.mark.parametrize(("dialect", "text"), [(TRITON, TRITON_FILE), (CUTILE, CUTILE_FILE)])
def test_what_is_timed_comes_in_the_order_of_its_cost_and_alone(dialect, text) -> None:  # type: ignore[no-untyped-def]
    def names(*timed: str) -> list[str]:
        return [kernel.name for kernel in dialect.chosen(Source(text, "kernel.py", timed))]

    assert names() == ["forward_kernel", "backward_kernel"]
    assert names("backward_kernel", "forward_kernel") == ["backward_kernel", "forward_kernel"]
    assert names("backward_kernel") == ["backward_kernel"]
    assert names("of_another_file") == ["forward_kernel", "backward_kernel"]


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("occupancy-hint", CUTILE_FILE),
        ("store-without-tma", CUTILE_FILE),
        ("load-latency", CUTILE_FILE),
        ("warps-and-stages", TRITON_FILE),
        ("block-size", TRITON_FILE),
        ("blocks-and-warps", TRITON_FILE),
        ("even-blocks", TRITON_FILE),
    ],
)
def test_only_what_is_timed_is_changed(entry: str, text: str) -> None:
    assert changed(entry, subject(text, "backward_kernel")) == {"backward"}
    assert "forward" in changed(entry, subject(text))


def test_what_is_rewritten_on_the_way_keeps_what_is_timed() -> None:
    source = Source(TRITON_FILE, "kernel.py", ("backward_kernel",))
    assert source.with_text("x = 1").timed == ("backward_kernel",)
    assert source is Source(TRITON_FILE, "kernel.py", ("backward_kernel",))
    assert source is not Source(TRITON_FILE, "kernel.py")


def test_a_person_is_told_which_are_left_alone() -> None:
    launch = replace(LAUNCH, kernel="backward_kernel")
    (line,) = left_alone(Source(TRITON_FILE), [launch])
    assert line == "no perf test launches forward_kernel: left as they are"
    both = [launch, replace(launch, kernel="forward_kernel")]
    assert list(left_alone(Source(TRITON_FILE), both)) == []
    assert list(left_alone(Source(TRITON_FILE), [])) == []
