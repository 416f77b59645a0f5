"""Kernels that promise sums in one order are not tuned by sizes: the batch would choose it."""

from __future__ import annotations

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.syntax import Source

MEAN = """\
import torch
import triton
import triton.language as tl


@triton.jit
def mean_kernel(x_ptr, y_ptr, m, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0), axis=0)
    tl.store(y_ptr + row, total / n, mask=row < m)


def mean(x):
    y = torch.empty(x.shape[0], device=x.device)
    m, n = x.shape
    mean_kernel[(m,)](x, y, m, n, BLOCK=1024)
    return y
"""
ADDED = playbook.get("add-autotune").before
KEYED = MEAN.replace(
    "@triton.jit\n",
    '@triton.autotune(configs=[triton.Config({"BLOCK": b}) for b in (512, 1024)], key=["n"])\n'
    "@triton.jit\n",
).replace(", BLOCK=1024", "")


def asked(text: str, path: str = "ops.py") -> Subject:
    return Subject(Source(text, path), KernelClass.MEMORY, Hardware(sm=90))


@pytest.mark.parametrize(("entry", "text"), [("add-autotune", MEAN), ("tuning-key", KEYED)])
@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("mean", "mean", "ops/batch_invariant_ops.py"),
        ("mean_kernel", "mean_batch_invariant_kernel", "ops.py"),
        ("def mean(", "def deterministic_mean(", "ops.py"),
    ],
)
def test_an_order_that_a_name_promises_is_kept(
    entry: str, text: str, old: str, new: str, path: str
) -> None:
    with pytest.raises(NotApplicable, match="promises sums in one order"):
        playbook.get(entry).variants(asked(text.replace(old, new), path))


@pytest.mark.parametrize(
    ("entry", "text", "path"),
    [
        ("add-autotune", MEAN, "ops.py"),
        ("add-autotune", MEAN, "nondeterministic.py"),
        ("add-autotune", ADDED, "batch_invariant_ops.py"),
        ("tuning-key", KEYED, "deterministic/ops.py"),
    ],
)
def test_where_none_is_promised_or_nothing_summed_it_may_change(
    entry: str, text: str, path: str
) -> None:
    assert playbook.get(entry).variants(asked(text, path))
