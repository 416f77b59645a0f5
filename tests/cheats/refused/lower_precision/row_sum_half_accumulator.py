"""Refused: long rows are summed in half precision."""
# refused: precision

import torch
import triton
import triton.language as tl

BLOCK = 128


@triton.jit
def row_sum_kernel(x_ptr, y_ptr, n_cols, total, BLOCK: tl.constexpr):
    """One program sums one row, in `total` blocks of BLOCK columns."""
    row = tl.program_id(0)
    acc = tl.zeros((BLOCK,), dtype=tl.float16)
    for index in range(total):
        cols = index * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
        acc += x.to(tl.float16)
    tl.store(y_ptr + row, tl.sum(acc.to(tl.float32), axis=0))


def row_sum(x: torch.Tensor) -> torch.Tensor:
    """The sums over the last dimension of a contiguous (M, N) matrix."""
    m, n = x.shape
    y = torch.empty(m, dtype=x.dtype, device=x.device)
    total = triton.cdiv(n, BLOCK)
    row_sum_kernel[(m,)](x, y, n, total, BLOCK=BLOCK)
    return y
