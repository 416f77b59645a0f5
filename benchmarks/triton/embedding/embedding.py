"""Rows of a table by their indices, in Triton: the embedding of tokens."""

import torch
import triton
import triton.language as tl

BLOCK_SIZE = 256


@triton.jit
def embedding_kernel(indices_ptr, table_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    """One program copies BLOCK columns of the row of one index."""
    i = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    row = tl.load(indices_ptr + i)
    values = tl.load(table_ptr + row * n_cols + cols, mask=mask)
    tl.store(out_ptr + i * n_cols + cols, values, mask=mask)


def embedding(indices: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """table[indices] for int64 indices of shape (M,) and a contiguous table of shape (V, N)."""
    n_rows, n_cols = indices.numel(), table.shape[1]
    out = torch.empty((n_rows, n_cols), dtype=table.dtype, device=table.device)
    grid = (n_rows, triton.cdiv(n_cols, BLOCK_SIZE))
    embedding_kernel[grid](indices, table, out, n_cols, BLOCK=BLOCK_SIZE)
    return out
