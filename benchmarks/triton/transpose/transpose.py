"""Transposition of a matrix in memory, in Triton."""

import torch
import triton
import triton.language as tl

BLOCK_SIZE_M = 32
BLOCK_SIZE_N = 32


@triton.jit
def transpose_kernel(
    x_ptr, y_ptr, M, N, x_stride, y_stride, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """One program transposes one BLOCK_M x BLOCK_N block."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x_mask = (rows[:, None] < M) & (cols[None, :] < N)
    x = tl.load(x_ptr + rows[:, None] * x_stride + cols[None, :], mask=x_mask)
    y_mask = (cols[:, None] < N) & (rows[None, :] < M)
    tl.store(y_ptr + cols[:, None] * y_stride + rows[None, :], tl.trans(x), mask=y_mask)


def transpose(x: torch.Tensor) -> torch.Tensor:
    """A contiguous copy of x.T for an (M, N) matrix whose rows are contiguous.

    Offsets are 32 bits wide: below 2**31 elements.
    """
    M, N = x.shape
    y = torch.empty((N, M), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, BLOCK_SIZE_M), triton.cdiv(N, BLOCK_SIZE_N))
    transpose_kernel[grid](
        x, y, M, N, x.stride(0), y.stride(0), BLOCK_M=BLOCK_SIZE_M, BLOCK_N=BLOCK_SIZE_N
    )
    return y
