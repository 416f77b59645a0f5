"""Honest: parts of a row are summed by programs of their own, and then together."""
# rounding: differs

import torch
import triton
import triton.language as tl

BLOCK = 128


@triton.jit
def row_sum_kernel(x_ptr, y_ptr, n_cols, total, BLOCK: tl.constexpr):
    """One program sums one row, in `total` blocks of BLOCK columns."""
    row = tl.program_id(0)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for index in range(total):
        cols = index * BLOCK + tl.arange(0, BLOCK)
        acc += tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(y_ptr + row, tl.sum(acc, axis=0))


def row_sum(x: torch.Tensor) -> torch.Tensor:
    """The sums over the last dimension of a contiguous (M, N) matrix."""
    m, n = x.shape
    y = torch.empty(m, dtype=x.dtype, device=x.device)
    parts = torch.empty((m, 2), dtype=torch.float32, device=x.device)
    part_kernel[(m, 2)](x, parts, n, PARTS=2, BLOCK=BLOCK)
    row_sum_kernel[(m,)](parts, y, 2, 1, BLOCK=BLOCK)
    return y


@triton.jit
def part_kernel(x_ptr, part_ptr, n_cols, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """One program sums every PARTS-th block of a row."""
    row = tl.program_id(0)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(tl.program_id(1) * BLOCK, n_cols, PARTS * BLOCK):
        cols = start + tl.arange(0, BLOCK)
        acc += tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(part_ptr + row * PARTS + tl.program_id(1), tl.sum(acc, axis=0))
