"""Options that the host plans its launches by: no entry sets others."""

from __future__ import annotations

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.syntax import Source

TEXT = """\
import torch
import triton
import triton.language as tl

REGISTERS, PROCESSORS = 65536, 132


@triton.jit
def norm_kernel(x_ptr, y_ptr, stride, n_rows, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * stride + cols, mask=cols < n, other=0.0)
        y = x / tl.sqrt(tl.sum(x * x, axis=0))
        tl.store(y_ptr + row * stride + cols, y, mask=cols < n)


def norm(x):
    y = torch.empty_like(x)
    m, n = x.shape
    BLOCK = triton.next_power_of_2(n)
    warps = 8
    {plan}
    {launch}
    return y
"""
WARMUP = "made = norm_kernel.warmup(y, x, n, m, n, BLOCK=BLOCK, num_warps=warps, grid=(1,))\n    "
OCCUPANCY = "programs = REGISTERS // (made.n_regs * 32 * warps) * PROCESSORS"
MADE = "made[(programs, 1, 1)](y, x, n, m, n, BLOCK)"
PLAIN = "norm_kernel[(programs,)](y, x, n, m, n, BLOCK=BLOCK, num_warps=warps)"
NAMES = ("warps-by-row", "warps-and-stages")
COMPILED = (
    "line 22 compiles norm_kernel with num_warps of its own, and what the host computes of that "
    "may be for no other"
)
COMPUTED = "line 22 computes with `warps`, which the launch at line 23 gives for num_warps"


def subject(plan: str, launch: str) -> Subject:
    text = TEXT.format(plan=plan, launch=launch)
    return Subject(Source(text), KernelClass.MEMORY, Hardware())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("plan", "launch", "reason"),
    [
        (WARMUP + OCCUPANCY, MADE, COMPILED),
        ("programs = REGISTERS // (64 * 32 * warps)", PLAIN, COMPUTED),
    ],
)
def test_the_options_stay(name: str, plan: str, launch: str, reason: str) -> None:
    with pytest.raises(NotApplicable) as refused:
        playbook.get(name).variants(subject(plan, launch))
    assert str(refused.value) == reason


@pytest.mark.parametrize("name", [entry.name for entry in playbook.for_backend("triton")])
def test_no_entry_sets_warps_that_the_grid_is_computed_with(name: str) -> None:
    asked = subject(WARMUP + OCCUPANCY, MADE)
    entry = playbook.get(name)
    try:
        variants = entry.variants(asked)
    except NotApplicable:
        return
    for params in variants:
        assert entry.apply(asked, params).count("num_warps") == 1


@pytest.mark.parametrize(
    "plan",
    [
        "programs = PROCESSORS",
        "programs = PROCESSORS\n    warps = warps * 2",
        "programs = PROCESSORS\n    norm_kernel.warmup(y, x, n, m, n, BLOCK=BLOCK, grid=(1,))",
        "programs = PROCESSORS\n    print(warps, 2 * m)",
    ],
)
def test_what_is_not_planned_by_may_change(plan: str) -> None:
    assert playbook.get("warps-by-row").variants(subject(plan, PLAIN))
