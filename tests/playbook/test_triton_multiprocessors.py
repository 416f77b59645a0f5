"""Grids of as many programs as the GPU has multiprocessors: no size, and persistent already."""

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


@triton.autotune(
    configs=[triton.Config({{}}, num_warps=w) for w in (1, 4, 8)], key=[{key}]
)
@triton.jit
def sums_kernel(x_ptr, y_ptr, m, n, rows, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for row in range(pid * rows, min((pid + 1) * rows, m)):
        total += tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
    tl.store(y_ptr + pid * n + cols, total, mask=cols < n)


def sums(x, more):
    m, n = x.shape
    sms = {count}
    programs = {programs}
    y = torch.empty((programs, n))
    grid = (programs,)
    sums_kernel[grid](x, y, m, n, triton.cdiv(m, programs), BLOCK=triton.next_power_of_2(n))
    return y.sum(0)
"""
PROPERTIES = "torch.cuda.get_device_properties(x.device).multi_processor_count"
UTILS = 'triton.runtime.driver.active.utils.get_device_properties(0)["multiprocessor_count"]'


def of(programs: str, count: str = PROPERTIES, *, key: str = '"n"', tuned: bool = True) -> Subject:
    text = TEXT.format(count=count, programs=programs, key=key)
    if not tuned:
        text = text[: text.index("@triton.autotune")] + text[text.index("@triton.jit") :]
    return Subject(Source(text), KernelClass.MEMORY, Hardware())


@pytest.mark.parametrize("count", [PROPERTIES, UTILS])
@pytest.mark.parametrize("programs", ["sms", "2 * sms", "min(sms * 4, 256)"])
def test_a_number_that_only_the_gpu_decides_is_no_size(programs: str, count: str) -> None:
    with pytest.raises(NotApplicable, match="programs is always the same on one GPU"):
        playbook.get("tuning-key").apply(of(programs, count, key='"m", "n", "rows"'), {})


@pytest.mark.parametrize("programs", ["m", "min(sms, m)", "sms * more"])
def test_a_number_that_the_rows_decide_is_one(programs: str) -> None:
    new = playbook.get("tuning-key").apply(of(programs), {})
    assert "programs_bucket=triton.next_power_of_2(programs)" in new


@pytest.mark.parametrize("programs", ["sms", "sms * 8"])
def test_a_grid_that_follows_the_gpu_stays(programs: str) -> None:
    with pytest.raises(NotApplicable, match="follows from the GPU's multiprocessors already"):
        playbook.get("persistent-programs").variants(of(programs, tuned=False))


def test_a_grid_of_a_program_a_row_does_not() -> None:
    assert playbook.get("persistent-programs").variants(of("m", tuned=False))
