"""Causal attention, forward, in Triton."""

import math

import torch
import triton
import triton.language as tl

BLOCK_SIZE_M = 64
BLOCK_SIZE_N = 64


@triton.jit
def attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    scale,
    positions,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One program computes BLOCK_M queries of one head, over their keys in steps of BLOCK_N."""
    pid_m = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64) * positions * HEAD_DIM
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, HEAD_DIM)
    q_ptrs = q_ptr + head + offs_m[:, None] * HEAD_DIM + offs_d[None, :]
    q = tl.load(q_ptrs, mask=offs_m[:, None] < positions, other=0.0)

    largest = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    denominator = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, HEAD_DIM), dtype=tl.float32)
    for start in range(0, (pid_m + 1) * BLOCK_M, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        k_ptrs = k_ptr + head + offs_n[None, :] * HEAD_DIM + offs_d[:, None]
        k = tl.load(k_ptrs, mask=offs_n[None, :] < positions, other=0.0)
        scores = tl.dot(q, k) * scale
        scores = tl.where(offs_n[None, :] <= offs_m[:, None], scores, -float("inf"))

        new_largest = tl.maximum(largest, tl.max(scores, axis=1))
        correction = tl.exp(largest - new_largest)
        weights = tl.exp(scores - new_largest[:, None])
        denominator = denominator * correction + tl.sum(weights, axis=1)
        v_ptrs = v_ptr + head + offs_n[:, None] * HEAD_DIM + offs_d[None, :]
        v = tl.load(v_ptrs, mask=offs_n[:, None] < positions, other=0.0)
        acc = acc * correction[:, None] + tl.dot(weights.to(v.dtype), v)
        largest = new_largest

    out = acc / denominator[:, None]
    out_ptrs = out_ptr + head + offs_m[:, None] * HEAD_DIM + offs_d[None, :]
    tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=offs_m[:, None] < positions)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Each query attends to the keys up to its own position.

    All of shape (batch, heads, positions, head dimension), fp16 or bf16; the head dimension is a
    power of two.
    """
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    batch, heads, positions, head_dim = q.shape
    out = torch.empty((batch, heads, positions, head_dim), dtype=q.dtype, device=q.device)
    grid = (triton.cdiv(positions, BLOCK_SIZE_M), batch * heads)
    attention_kernel[grid](
        q,
        k,
        v,
        out,
        1 / math.sqrt(head_dim),
        positions,
        HEAD_DIM=head_dim,
        BLOCK_M=BLOCK_SIZE_M,
        BLOCK_N=BLOCK_SIZE_N,
    )
    return out
