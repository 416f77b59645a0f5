"""Root-mean-square normalization of every head of the queries or keys of attention, in Triton."""

import torch
import triton
import triton.language as tl


@triton.jit
def qk_norm_kernel(
    x_ptr, weight_ptr, y_ptr, x_stride, y_stride, head_dim, eps, BLOCK: tl.constexpr
):
    """One program normalizes one head of one token, which it holds whole."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < head_dim
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(tl.float32)
    mean_square = tl.sum(x * x, axis=0) / head_dim
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    y = x / tl.sqrt(mean_square + eps) * weight
    tl.store(y_ptr + row * y_stride + cols, y, mask=mask)


def qk_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Normalize the last dimension of a tensor of shape (tokens, heads, head_dim).

    `weight` has shape (head_dim,) and serves all heads.
    """
    head_dim = x.shape[-1]
    rows = x.reshape(-1, head_dim)
    n_rows = rows.shape[0]
    y = torch.empty((n_rows, head_dim), dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(head_dim)  # as tl.arange wants it
    qk_norm_kernel[(n_rows,)](
        rows, weight, y, rows.stride(0), y.stride(0), head_dim, eps, BLOCK=block
    )
    return y.view(x.shape)
