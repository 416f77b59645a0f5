"""Honest: what depends on the width alone is kept by width."""
# rounding: differs

import functools

import torch
import triton
import triton.language as tl

BLOCK = 128


@functools.cache
def _launcher(n: int):
    """The number of blocks and the settings for rows of n columns."""
    block = 256 if n >= 256 else BLOCK
    return triton.cdiv(n, block), block


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
    total, block = _launcher(n)
    row_sum_kernel[(m,)](x, y, n, total, BLOCK=block)
    return y
