"""Honest: the row is held whole and read once."""
# rounding: differs

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, y_ptr, n_cols, eps, BLOCK: tl.constexpr):
    """One program normalizes one row which it holds whole."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0)
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / n_cols + eps)
    tl.store(y_ptr + row * n_cols + cols, x * rstd * weight, mask=mask)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Normalize the rows of a contiguous (M, N) matrix; `weight` has shape (N,)."""
    n_rows, n_cols = x.shape
    y = torch.empty_like(x)
    rms_norm_kernel[(n_rows,)](x, weight, y, n_cols, eps, BLOCK=triton.next_power_of_2(n_cols))
    return y
