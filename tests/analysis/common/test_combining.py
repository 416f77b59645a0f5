"""Rounds that are put together by the reduction's own operation, and by another one."""

from __future__ import annotations

import pytest

from agent.analysis.common.constant_flow import Flow
from agent.analysis.common.needed_sizes import needed_size
from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source

KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, by, BLOCK: tl.constexpr):
    s = 0.0
    top = -float("inf")
    count = 0
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n, other=0.0)
        ROUND
    tl.store(y_ptr, RESULT)
"""
MEAN = "part = tl.sum(x, 0) / tl.sum((at < n).to(tl.float32), 0)"


def reason(lines: str, result: str) -> str | None:
    text = KERNEL.replace("ROUND", lines.replace("\n", "\n        ")).replace("RESULT", result)
    source = Source(text)
    (kernel,) = TRITON.kernels(source)
    return needed_size(Flow(TRITON, source, kernel, "BLOCK"))


@pytest.mark.parametrize(
    ("lines", "result"),
    [
        ("s += tl.max(x, 0)", "s"),
        ("s = tl.max(tl.abs(x), 0) * by + s", "s"),
        ("part = tl.min(x, 0)\ns = s + part", "s"),
        ("top = tl.maximum(top, tl.sum(x, 0))", "top"),
        ("s += tl.sqrt(tl.sum(x * x, 0))", "s"),
        (f"{MEAN}\ns += part", "s / by"),
        (f"{MEAN}\ncount += 1\ns += (part - s) / count", "s"),
        ("count += 1\ns += tl.sum(x, 0) * count", "s"),
        ("acc += x", "tl.max(acc, 0)"),
        ("acc += x", "tl.sum(acc * acc, 0)"),
        ("acc += x", "tl.sum(tl.exp(acc), 0)"),
        ("acc = tl.maximum(acc, x)", "tl.sum(acc, 0)"),
    ],
)
def test_another_operation_takes_the_blocks_as_they_are(lines: str, result: str) -> None:
    assert "by another operation" in str(reason(lines, result))


@pytest.mark.parametrize(
    ("lines", "result"),
    [
        ("s += tl.sum(x, 0)", "s"),
        ("s += tl.sum(x, 0) / by * 2.0", "s"),
        ("s -= tl.sum(tl.exp(x), 0).to(tl.float32)", "s"),
        ("s += tl.sum(x, 0)\ncount += 1", "s"),
        ("top = tl.maximum(top, tl.max(x, 0))", "top"),
        ("acc += x * x", "tl.sum(acc, axis=0) / n"),
        ("acc += x", "tl.sqrt(tl.sum(acc * by, 0))"),
        ("acc = tl.maximum(acc, x)", "tl.max(acc, 0)"),
        ("new = tl.maximum(top, tl.max(x, 0))\n"
         "s = s * tl.exp(top - new) + tl.sum(tl.exp(x - new), 0)\ntop = new", "s"),
        ("own = tl.max(x, 0)\npart = tl.sum(tl.exp(x - own), 0)\nnew = tl.maximum(top, own)\n"
         "s = s * tl.exp(top - new) + part * tl.exp(own - new)\ntop = new", "s"),
    ],
)  # fmt: skip
def test_its_own_does_not(lines: str, result: str) -> None:
    assert reason(lines, result) is None
