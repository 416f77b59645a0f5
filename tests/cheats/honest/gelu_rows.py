"""Honest: a program takes a part of one row, so that no remainder is taken."""

import torch
import triton
import triton.language as tl

BLOCK = 256


@triton.jit
def gelu_kernel(x_ptr, bias_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    """One program takes BLOCK columns of one row."""
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    offsets = tl.program_id(0) * n_cols + cols
    mask = cols < n_cols
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    x += tl.load(bias_ptr + cols, mask=mask, other=0.0)
    y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    tl.store(y_ptr + offsets, y, mask=mask)


def gelu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """GELU of an (M, N) matrix plus a bias of shape (N,); both are contiguous."""
    y = torch.empty_like(x)
    n_rows, n_cols = x.shape
    grid = (n_rows, triton.cdiv(n_cols, BLOCK))
    gelu_kernel[grid](x, bias, y, n_cols, BLOCK=BLOCK)
    return y
