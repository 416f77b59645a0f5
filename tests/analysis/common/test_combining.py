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


PRODUCT = """\
import triton
import triton.language as tl


@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, n, k, by, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.arange(0, N)
    places = m[:, None] * n + columns[None, :]
    acc = tl.zeros((M, N), tl.float32)
    s = tl.zeros((M,), tl.float32)
    for start in range(0, k, K):
        at = start + tl.arange(0, K)
        a = tl.load(a_ptr + m[:, None] * k + at[None, :], mask=at[None, :] < k, other=0.0)
        b = tl.load(b_ptr + at[:, None] * n + columns[None, :], mask=at[:, None] < k, other=0.0)
        ROUND
    tl.store(c_ptr + places, acc)
    tl.store(c_ptr + m, s)
"""


def reason_of_product(lines: str) -> str | None:
    source = Source(PRODUCT.replace("ROUND", lines.replace("\n", "\n        ")))
    (kernel,) = TRITON.kernels(source)
    return needed_size(Flow(TRITON, source, kernel, "K"))


@pytest.mark.parametrize(
    "lines",
    [
        "part = tl.dot(a, b)\nacc += part * part",
        "acc += tl.abs(tl.dot(a, b))",
        "part = tl.dot(a, b)\nacc += tl.where(part > 0, part, 0.0)",
        "part = tl.dot(a, b)\nacc = acc + tl.maximum(part, 0.0)",
        "part = tl.dot(a, b)\ns += tl.sum(tl.abs(part), 1)",
        "acc = tl.maximum(acc, tl.dot(a, b))",
        "part = tl.dot(a, b)\nacc += part / tl.sum(part, 1)[:, None]",
        "part = tl.dot(a, b)\ntl.store(c_ptr + places, part)",
        "acc = tl.dot(a, b)",
    ],
)
def test_a_part_of_a_product_is_to_be_added_up(lines: str) -> None:
    assert reason_of_product(lines) is not None


@pytest.mark.parametrize(
    "lines",
    [
        "acc += tl.dot(a, b)",
        "acc = tl.dot(a, b, acc)",
        "part = tl.dot(a, b)\nacc += part.to(tl.float32) * by",
        "s += tl.sum(tl.dot(a, b), 1)",
        "acc = tl.dot(a, b, acc)\nif start + K >= k:\n    tl.store(c_ptr + places, acc)",
    ],
)
def test_which_is_what_most_do(lines: str) -> None:
    assert reason_of_product(lines) is None
