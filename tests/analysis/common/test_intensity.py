"""What bounds a kernel, told from its source."""

from __future__ import annotations

import pytest

from agent.analysis.common.kernels import Classification, KernelClass
from agent.backends import BACKENDS
from agent.errors import UsageError
from agent.syntax import Source

TRITON = "import triton\nimport triton.language as tl\n"

SOFTMAX = """
@triton.jit
def kernel(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < n, other=-float("inf"))
    numerator = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * stride + cols, numerator / tl.sum(numerator, axis=0), mask=cols < n)
"""
LAYER_NORM = """
@triton.jit
def kernel(x_ptr, w_ptr, b_ptr, y_ptr, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * stride + cols, mask=cols < n, other=0.0)
    mean = tl.sum(total, axis=0) / n
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + cols, mask=cols < n)
        y = (x - mean) * tl.load(w_ptr + cols) + tl.load(b_ptr + cols)
        tl.store(y_ptr + row * stride + cols, y, mask=cols < n)
"""
ELEMENTWISE = """
@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, x * tl.sigmoid(x), mask=offsets < n)
"""
LOG_SUM_EXP = """
@triton.jit
def kernel(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    biggest = -float("inf")
    total = 0.0
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + cols, mask=cols < n, other=-float("inf"))
        new = tl.maximum(biggest, tl.max(x, axis=0))
        total = total * tl.exp(biggest - new) + tl.sum(tl.exp(x - new), axis=0)
        biggest = new
    tl.store(y_ptr + row, biggest + tl.log(total))
"""
MATMUL = """
@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        inner = k + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * K + inner[None, :])
        b = tl.load(b_ptr + inner[:, None] * N + cols[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc)
"""
ATTENTION = """
@triton.jit
def inner(acc, q, k_ptr, v_ptr, n, BM: tl.constexpr, BN: tl.constexpr):
    for start in range(0, n, BN):
        k = tl.load(k_ptr + start)
        p = tl.exp(tl.dot(q, k))
        acc = tl.dot(p, tl.load(v_ptr + start), acc)
    return acc

@triton.jit
def kernel(q_ptr, k_ptr, v_ptr, o_ptr, n, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    q = tl.load(q_ptr + tl.program_id(0) * BM + tl.arange(0, BM))
    acc = tl.zeros([BM, D], dtype=tl.float32)
    acc = inner(acc, q, k_ptr, v_ptr, n, BM, BN)
    tl.store(o_ptr + tl.program_id(0) * BM + tl.arange(0, BM), acc)
"""
ESCAPE_TIME = """
@triton.jit
def kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.load(x_ptr + offsets)
    z = c
    for _ in range(200):
        z = z * z + c
    tl.store(y_ptr + offsets, z)
"""


def classify(kernel: str, launch: str = "kernel[(1,)](None)") -> Classification:
    return BACKENDS["triton"].classify(Source(f"{TRITON}{kernel}\n{launch}\n"))


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (SOFTMAX, KernelClass.MEMORY),
        (LAYER_NORM, KernelClass.MEMORY),
        (ELEMENTWISE, KernelClass.MEMORY),
        (LOG_SUM_EXP, KernelClass.MEMORY),
        (MATMUL, KernelClass.COMPUTE),
        (ATTENTION, KernelClass.COMPUTE),
        (ESCAPE_TIME, KernelClass.COMPUTE),
    ],
    ids=["softmax", "layer norm", "elementwise", "log-sum-exp", "matmul", "attention", "escape"],
)
def test_classes(kernel: str, expected: KernelClass) -> None:
    assert classify(kernel).kernel_class is expected


def test_operations_and_accesses_are_counted() -> None:
    found = classify(SOFTMAX)
    assert found.flop_per_byte == 1.25  # max, sub, exp, sum, div against a load and a store
    assert "5 operations on each element against 2 loads and stores" in found.evidence[0]


def test_the_tile_sizes_are_taken_from_the_launch() -> None:
    found = classify(MATMUL, "S = 128\nkernel[(1,)](a, b, c, 1, 1, 1, BM=S, BN=256, BK=64)")
    assert "a 128 x 256 tile does 85 operations for each byte its block loads" in found.evidence
    assert "tell" not in found.evidence[-1]
    assert "64 for the edge" in classify(MATMUL).evidence[-1]


def test_only_what_is_launched_counts() -> None:
    unused = MATMUL.replace("def kernel(", "def unused(")
    assert classify(unused + SOFTMAX).kernel_class is KernelClass.MEMORY


def test_the_kernel_with_the_most_work_decides() -> None:
    both = MATMUL.replace("def kernel(", "def product(") + SOFTMAX
    found = classify(both, "product[(1,)](None)\nkernel[(1,)](None)")
    assert found.kernel_class is KernelClass.COMPUTE
    assert found.evidence[-1] == "product does the most work; also: kernel"


def test_helpers_of_a_file_that_launches_nothing_are_no_kernels() -> None:
    """They count with the kernel that calls them, once."""
    helper = "@triton.jit\ndef twice(x):\n    return x + x\n\n\n"
    kernel = ELEMENTWISE.replace("def kernel(", "def caller(", 1)
    called = kernel.replace("tl.store(", "twice(1.0)\n    tl.store(", 1)
    both = called + SOFTMAX
    found = classify(helper + both, "")
    assert "also: caller" in found.evidence[-1] and "twice" not in found.evidence[-1]


def test_what_no_perf_test_launches_does_not_count() -> None:
    both = MATMUL.replace("def kernel(", "def product(") + SOFTMAX
    text = f"{TRITON}{both}\nproduct[(1,)](None)\nkernel[(1,)](None)\n"
    found = BACKENDS["triton"].classify(Source(text, timed=("kernel",)))
    assert found.kernel_class is KernelClass.MEMORY
    assert "kernel, line" in found.evidence[0] and "also" not in found.evidence[-1]


def test_cutile() -> None:
    text = """
import cuda.tile as ct

@ct.kernel
def kernel(a, b, c, n: ct.Constant[int]):
    acc = ct.zeros((n, n), ct.float32)
    for k in range(ct.num_tiles(a, 1, (n, n))):
        acc += ct.load(a, (0, k), (n, n)) @ ct.load(b, (k, 0), (n, n))
    ct.store(c, (0, 0), acc)

ct.launch(stream, (1,), kernel, (a, b, c, 64))
"""
    found = BACKENDS["cutile"].classify(Source(text))
    assert found.kernel_class is KernelClass.COMPUTE
    assert "a 64 x 64 tile" in found.evidence[1]


def test_an_edge_that_is_not_told_is_not_the_smallest() -> None:
    """The accumulator of an attention has the head's width, its running maximum has one column."""
    text = """
import cuda.tile as ct

@ct.kernel
def kernel(a, b, c, d: ct.Constant[int]):
    acc = ct.zeros((64, d), ct.float32)
    most = ct.zeros((64, 1), ct.float32)
    for k in range(ct.num_tiles(a, 1, (64, 64))):
        acc += ct.load(a, (0, k), (64, 64)) @ ct.load(b, (k, 0), (64, d))
        most = ct.maximum(most, acc)
    ct.store(c, (0, 0), acc)

def run(a, b, c):
    ct.launch(stream, (1,), kernel, (a, b, c, a.shape[1]))
"""
    found = BACKENDS["cutile"].classify(Source(text))
    assert found.kernel_class is KernelClass.COMPUTE
    assert "a 64 x 64 tile" in found.evidence[1]


def test_a_file_without_kernels() -> None:
    with pytest.raises(UsageError, match=r"x\.py holds no triton\.jit kernel"):
        BACKENDS["triton"].classify(Source("", "x.py"))
