"""Honest: a few programs go through all rows."""

import torch
import triton
import triton.language as tl


@triton.jit
def quantize_kernel(x_ptr, q_ptr, scale_ptr, zero_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    """One program takes every n-th row, each of which it holds whole."""
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0)
        largest = tl.max(tl.abs(x), axis=0)
        is_zero = largest == 0.0
        scale = tl.where(is_zero, 1.0, largest / 127.0)
        q = tl.floor(x / scale + 0.5).to(tl.int8)
        tl.store(q_ptr + row * n_cols + cols, q, mask=mask)
        tl.store(scale_ptr + row, scale)
        tl.store(zero_ptr + row, is_zero)


def quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The int8 values of a contiguous (M, N) matrix, the scale of each row, and if it is zero."""
    m, n = x.shape
    q = torch.empty((m, n), dtype=torch.int8, device=x.device)
    scale = torch.empty(m, dtype=torch.float32, device=x.device)
    zero = torch.empty(m, dtype=torch.bool, device=x.device)
    quantize_kernel[(min(m, 4),)](x, q, scale, zero, m, n, BLOCK=triton.next_power_of_2(n))
    return q, scale, zero
