"""Each mutator puts its fault into a small kernel, and nothing else."""

from __future__ import annotations

import difflib

import pytest

from benchmarks.mutants import mutate
from benchmarks.mutators import MUTATORS

TRITON = """\
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, w_ptr, y_ptr, sum_ptr, x_stride, y_stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = (cols < n) & (cols <= row)
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=-float("inf")).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=mask)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    largest = -float("inf")
    for k in range(0, n, BLOCK):
        acc += tl.dot(x, w)
        largest = tl.maximum(largest, tl.max(acc, axis=1))
    y = tl.where(mask, x - largest, 0.0) / tl.sqrt(w + eps) * 0.5
    tl.store(y_ptr + row * y_stride + cols, y, mask=mask)
    tl.atomic_add(sum_ptr + row, y)


def launch(x, w, sums):
    y = torch.empty(x.shape, dtype=x.dtype)
    grid = (x.shape[0], triton.cdiv(x.shape[1], 64))
    kernel[grid](x, w, y, sums, x.stride(0), y.stride(0), x.shape[1], 1e-6, BLOCK=64)
    return y
"""
EXPECTED: dict[str, list[str]] = {
    "mask-inclusive": [
        "mask = (cols <= n) & (cols <= row)",
    ],
    "mask-bound": [
        "mask = (cols < n - 1) & (cols <= row)",
        "mask = (cols < n + 1) & (cols <= row)",
    ],
    "causal-shifted": [
        "mask = (cols < n) & (cols < row)",
        "mask = (cols < n) & (cols <= row + 1)",
    ],
    "mask-dropped": [
        "x = tl.load(x_ptr + row * x_stride + cols).to(tl.float32)",
        "w = tl.load(w_ptr + cols)",
        "tl.store(y_ptr + row * y_stride + cols, y)",
    ],
    "condition-dropped": [
        "mask = (cols < n)",
        "mask = (cols <= row)",
    ],
    "other-wrong": [
        "x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(tl.float32)",
    ],
    "other-dropped": [
        "x = tl.load(x_ptr + row * x_stride + cols, mask=mask).to(tl.float32)",
    ],
    "tail-missing": [
        "grid = (x.shape[0], (x.shape[1] // 64))",
    ],
    "grid-short": [
        "grid = (x.shape[0] - 1, triton.cdiv(x.shape[1], 64))",
        "grid = (x.shape[0], triton.cdiv(x.shape[1], 64) - 1)",
    ],
    "loop-short": [
        "for k in range(0, n - BLOCK + 1, BLOCK):",
    ],
    "loop-late": [
        "for k in range(BLOCK, n, BLOCK):",
    ],
    "loop-capped": ["for k in range(0, tl.minimum(n, 1024), BLOCK):"],
    "program-wrapped": [
        "row = (tl.program_id(0) % 128)",
        "cols = (tl.program_id(1) % 128) * BLOCK + tl.arange(0, BLOCK)",
    ],
    "stride-swapped": [
        'x = tl.load(x_ptr + row * y_stride + cols, mask=mask, other=-float("inf")).to(tl.float32)',
        "tl.store(y_ptr + row * x_stride + cols, y, mask=mask)",
        "kernel[grid](x, w, y, sums, x.stride(1), y.stride(0), x.shape[1], 1e-6, BLOCK=64)",
        "kernel[grid](x, w, y, sums, x.stride(0), y.stride(1), x.shape[1], 1e-6, BLOCK=64)",
    ],
    "stride-off-by-one": [
        "x = tl.load(x_ptr + row * (x_stride + 1) + cols, mask=mask, "
        'other=-float("inf")).to(tl.float32)',
        "tl.store(y_ptr + row * (y_stride + 1) + cols, y, mask=mask)",
    ],
    "offset-off-by-one": [
        "cols = tl.program_id(1) * (BLOCK - 1) + tl.arange(0, BLOCK)",
        "cols = tl.program_id(1) * BLOCK + (tl.arange(0, BLOCK) + 1)",
    ],
    "program-off-by-one": [
        "row = (tl.program_id(0) + 1)",
        "cols = (tl.program_id(1) + 1) * BLOCK + tl.arange(0, BLOCK)",
    ],
    "program-axis": [
        "row = tl.program_id(1)",
        "cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
    ],
    "program-ignored": [
        "cols = 0 * BLOCK + tl.arange(0, BLOCK)",
        'x = tl.load(x_ptr + 0 * x_stride + cols, mask=mask, other=-float("inf")).to(tl.float32)',
        "tl.store(y_ptr + 0 * y_stride + cols, y, mask=mask)",
        "tl.atomic_add(sum_ptr + 0, y)",
    ],
    "output-aliases-input": [
        "y = x",
    ],
    "atomic-split": [
        "tl.store(sum_ptr + row, tl.load(sum_ptr + row) + y)",
    ],
    "half-accumulator": [
        "acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float16) / acc += tl.dot(x, w).to(tl.float16)",
    ],
    "upcast-removed": [
        'x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=-float("inf"))',
    ],
    "upcast-to-half": [
        'x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=-float("inf")).to(tl.float16)',
    ],
    "operands-swapped": [
        "y = (tl.sqrt(w + eps) / tl.where(mask, x - largest, 0.0)) * 0.5",
        "y = tl.where(mask, (largest - x), 0.0) / tl.sqrt(w + eps) * 0.5",
        "acc += tl.dot(w, x)",
        "y = tl.where(mask, 0.0, x - largest) / tl.sqrt(w + eps) * 0.5",
    ],
    "eps-dropped": [
        "y = tl.where(mask, x - largest, 0.0) / tl.sqrt(w) * 0.5",
    ],
    "factor-dropped": [
        "y = (tl.where(mask, x - largest, 0.0) / tl.sqrt(w + eps))",
        "y = 0.5",
    ],
    "divisor-dropped": [
        "y = tl.where(mask, x - largest, 0.0) * 0.5",
    ],
    "term-dropped": [
        "y = tl.where(mask, x, 0.0) / tl.sqrt(w + eps) * 0.5",
    ],
    "accumulation-lost": [
        "acc = tl.dot(x, w)",
    ],
    "start-wrong": [
        "largest = 0.0",
    ],
    "axis-wrong": [
        "largest = tl.maximum(largest, tl.max(acc, axis=0))",
    ],
    "reduction-changed": [
        "largest = tl.maximum(largest, tl.min(acc, axis=1))",
        "largest = tl.minimum(largest, tl.max(acc, axis=1))",
    ],
    "constant-changed": [
        "y = tl.where(mask, x - largest, 0.0) / tl.sqrt(w + eps) * 0.515",
    ],
}

CUTILE = """\
import cuda.tile as ct
import torch


@ct.kernel
def kernel(x, y, TILE: ct.Constant[int]):
    row = ct.bid(0)
    total = ct.full((1, TILE), 0.0, dtype=ct.float32)
    for j in range(ct.num_tiles(x, axis=1, shape=(1, TILE))):
        tile = ct.load(x, index=(row, j), shape=(1, TILE), padding_mode=ct.PaddingMode.ZERO)
        total += tile.astype(ct.float32)
    mean = ct.sum(total, axis=1) / x.shape[1]
    ct.store(y, index=(row,), tile=mean.astype(y.dtype))


def launch(x):
    y = torch.empty(x.shape[0], dtype=x.dtype)
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), kernel, (x, y, 64))
    return y
"""
EXPECTED_CUTILE = {
    "other-wrong": [
        "tile = ct.load(x, index=(row, j), shape=(1, TILE), padding_mode=ct.PaddingMode.NEG_INF)",
    ],
    "grid-short": [
        "ct.launch(torch.cuda.current_stream(), (x.shape[0] - 1,), kernel, (x, y, 64))",
    ],
    "loop-late": ["for j in range(1, ct.num_tiles(x, axis=1, shape=(1, TILE))):"],
    "loop-short": ["for j in range(ct.num_tiles(x, axis=1, shape=(1, TILE)) - 1):"],
    "program-off-by-one": ["row = (ct.bid(0) + 1)"],
    "half-accumulator": [
        "total = ct.full((1, TILE), 0.0, dtype=ct.float16)"
        " / total += tile.astype(ct.float32).astype(ct.float16)",
    ],
    "axis-wrong": ["mean = ct.sum(total, axis=0) / x.shape[1]"],
    "accumulation-lost": ["total = tile.astype(ct.float32)"],
    "divisor-dropped": ["mean = ct.sum(total, axis=1)"],
    "mask-dropped": [],
    "stride-swapped": [],
}


def added(before: str, after: str) -> str:
    """The lines that are new, without their indentation."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return " / ".join(line[1:].strip() for line in list(lines)[2:] if line.startswith("+"))


@pytest.mark.parametrize("name", MUTATORS)
def test_a_mutator_of_triton(name: str) -> None:
    found = list(mutate(TRITON, "triton", [name]))
    assert [added(TRITON, fault.text) for fault in found] == EXPECTED[name]
    assert {fault.mutator for fault in found} == {name}


@pytest.mark.parametrize("name", EXPECTED_CUTILE)
def test_a_mutator_of_cutile(name: str) -> None:
    found = list(mutate(CUTILE, "cutile", [name]))
    assert [added(CUTILE, fault.text) for fault in found] == EXPECTED_CUTILE[name]


def test_the_line_is_that_of_the_fault() -> None:
    (fault,) = mutate(TRITON, "triton", ["tail-missing"])
    assert "triton.cdiv" in TRITON.splitlines()[fault.line - 1]


def test_no_text_comes_twice() -> None:
    texts = [fault.text for fault in mutate(TRITON, "triton")]
    assert len(texts) == len({TRITON, *texts}) - 1
    assert len(texts) > sum(map(len, EXPECTED.values())) - 5


def test_what_is_no_kernel_has_no_mutants() -> None:
    assert not list(mutate("def cdiv(a, b):\n    return a < b\n", "triton"))
