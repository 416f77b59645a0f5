"""Kernels whose programs may wait for one another, and loops and barriers that do not."""

from __future__ import annotations

import pytest

from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.waiting import check_never_waits
from agent.syntax import Source

KERNEL = """\
import triton
import triton.language as tl
from signals import acquire


@triton.jit
def flag(p):
    return tl.load(p, volatile=True)


@triton.jit
def kernel(p, q, n):
    i = 0
    {body}
    tl.store(q, i)
"""
BARRIER, COUNT = "tl.debug_barrier()", "tl.atomic_add(q, 1)"


def check(*lines: str) -> None:
    source = Source(KERNEL.format(body="\n    ".join(lines)))
    check_never_waits(source, next(k for k in TRITON.kernels(source) if k.name == "kernel"))


@pytest.mark.parametrize(
    "lines",
    [
        (BARRIER,),
        (COUNT,),
        ("for i in range(n):", f"    {BARRIER}", f"    {COUNT}"),
        (BARRIER, "while i < n:", "    i += tl.maximum(i.to(tl.int32), 1)", f"    {COUNT}"),
        ("while tl.load(p + i) < n:", "    i += 1"),
    ],
    ids=str,
)
def test_these_wait_for_nobody(lines: tuple[str, ...]) -> None:
    check(*lines)


@pytest.mark.parametrize(
    "lines",
    [
        ("tl.atomic_xchg(p, 1)",),
        ("while tl.atomic_cas(p, 0, 1) == 1:", "    pass"),
        ("while tl.atomic_add(p, 0) < n:", "    pass"),
        ("while tl.load(p, volatile=True) < n:", "    pass"),
        ("while flag(p) < n:", "    pass"),
        ("while acquire(p) < n:", "    pass"),
        (BARRIER, "while tl.load(p) < n:", "    pass"),
        (BARRIER, "while i < n:", "    x = tl.load(p)", "    i = x"),
        (COUNT, "while i < n:", "    if tl.load(p) == n:", "        i = n"),
    ],
    ids=str,
)
def test_these_may_wait_for_another_program(lines: tuple[str, ...]) -> None:
    with pytest.raises(NotApplicable, match=r"line 1[45] may wait for another program"):
        check(*lines)
