"""GELU of one half of a row times the other half, in Triton: the gate of a GeGLU layer."""

import torch
import triton
import triton.language as tl

BLOCK_SIZE = 1024


@triton.jit
def gelu_and_mul_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    """One program computes BLOCK columns of one row."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    gate = tl.load(x_ptr + row * 2 * n_cols + cols, mask=mask).to(tl.float32)
    up = tl.load(x_ptr + row * 2 * n_cols + n_cols + cols, mask=mask).to(tl.float32)
    inner = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate)  # sqrt(2 / pi)
    tanh = 2.0 * tl.sigmoid(2.0 * inner) - 1.0
    y = 0.5 * gate * (1.0 + tanh) * up
    tl.store(y_ptr + row * n_cols + cols, y, mask=mask)


def gelu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """gelu(x[:, :N]) * x[:, N:] for a matrix of shape (M, 2 * N); GELU by its tanh formula."""
    x = x.contiguous()
    n_rows, n_cols = x.shape[0], x.shape[1] // 2
    y = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    grid = (n_rows, triton.cdiv(n_cols, BLOCK_SIZE))
    gelu_and_mul_kernel[grid](x, y, n_cols, BLOCK=BLOCK_SIZE)
    return y
