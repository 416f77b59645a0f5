"""Honest: two rows a program."""
# rounding: differs

import torch
import triton
import triton.language as tl

BLOCK = 128


@triton.jit
def row_sum_kernel(x_ptr, y_ptr, n_rows, n_cols, total, BLOCK: tl.constexpr):
    """One program sums two rows, in `total` blocks of BLOCK columns."""
    rows = tl.program_id(0) * 2 + tl.arange(0, 2)
    in_rows = rows < n_rows
    acc = tl.zeros((2, BLOCK), dtype=tl.float32)
    for index in range(total):
        cols = index * BLOCK + tl.arange(0, BLOCK)
        mask = in_rows[:, None] & (cols < n_cols)[None, :]
        acc += tl.load(x_ptr + rows[:, None] * n_cols + cols[None, :], mask=mask, other=0.0)
    tl.store(y_ptr + rows, tl.sum(acc, axis=1), mask=in_rows)


def row_sum(x: torch.Tensor) -> torch.Tensor:
    """The sums over the last dimension of a contiguous (M, N) matrix."""
    m, n = x.shape
    y = torch.empty(m, dtype=x.dtype, device=x.device)
    total = triton.cdiv(n, BLOCK)
    row_sum_kernel[(triton.cdiv(m, 2),)](x, y, m, n, total, BLOCK=BLOCK)
    return y
