"""Honest: one kernel finds the factors of the rows, another one applies them."""
# rounding: differs

import torch
import triton
import triton.language as tl

BLOCK = 256


@triton.jit
def factor_kernel(x_ptr, rstd_ptr, n_cols, eps, BLOCK: tl.constexpr):
    """One program finds the factor of one row."""
    row = tl.program_id(0)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
        squares += x * x
    tl.store(rstd_ptr + row, 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps))


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Normalize the rows of a contiguous (M, N) matrix; `weight` has shape (N,)."""
    n_rows, n_cols = x.shape
    y = torch.empty_like(x)
    rstd = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    factor_kernel[(n_rows,)](x, rstd, n_cols, eps, BLOCK=BLOCK)
    grid = (n_rows, triton.cdiv(n_cols, BLOCK))
    apply_kernel[grid](x, weight, rstd, y, n_cols, BLOCK=BLOCK)
    return y


@triton.jit
def apply_kernel(x_ptr, weight_ptr, rstd_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    """One program normalizes BLOCK columns of one row."""
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask)
    weight = tl.load(weight_ptr + cols, mask=mask)
    tl.store(y_ptr + row * n_cols + cols, x * tl.load(rstd_ptr + row) * weight, mask=mask)
