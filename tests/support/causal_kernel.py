"""A causal product of tiles in Triton: each program's loop ends at its own rows."""

from __future__ import annotations

PREFIX = """\
import torch
import triton
import triton.language as tl


@triton.jit
def prefix_kernel(
    q_ptr, k_ptr, out_ptr, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, DIM: tl.constexpr
):
    pid_m = tl.program_id(0)
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, DIM)
    q_ptrs = q_ptr + rows[:, None] * DIM + dims[None, :]
    q = tl.load(q_ptrs, mask=rows[:, None] < n, other=0.0)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, (pid_m + 1) * BLOCK_M, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        k_ptrs = k_ptr + cols[:, None] * DIM + dims[None, :]
        k = tl.load(k_ptrs, mask=cols[:, None] < n, other=0.0)
        scores = tl.dot(q, tl.trans(k))
        scores = tl.where(cols[None, :] <= rows[:, None], scores, 0.0)
        acc += tl.dot(scores, k)
    out_ptrs = out_ptr + rows[:, None] * DIM + dims[None, :]
    tl.store(out_ptrs, acc, mask=rows[:, None] < n)


def prefix(q, k):
    n, dim = q.shape
    out = torch.empty_like(q)
    block_m = 32
    grid = (triton.cdiv(n, block_m),)
    prefix_kernel[grid](q, k, out, n, BLOCK_M=block_m, BLOCK_N=16, DIM=dim)
    return out
"""
