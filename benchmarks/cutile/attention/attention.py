"""Causal attention, forward, in cuTile."""

import math

import cuda.tile as ct
import torch

TILE_M = 64
TILE_N = 64


@ct.kernel
def attention_kernel(
    q,
    k,
    v,
    out,
    scale,
    HEAD_DIM: ct.Constant[int],
    TILE_M: ct.Constant[int],
    TILE_N: ct.Constant[int],
):
    """One block computes TILE_M queries of one head, over their keys in steps of TILE_N."""
    i = ct.bid(0)
    head = ct.bid(1)
    batch = ct.bid(2)
    q_tile = ct.load(
        q,
        index=(batch, head, i, 0),
        shape=(1, 1, TILE_M, HEAD_DIM),
        padding_mode=ct.PaddingMode.ZERO,
    )
    q_tile = ct.reshape(q_tile, (TILE_M, HEAD_DIM))
    rows = i * TILE_M + ct.arange(TILE_M, dtype=ct.int32)[:, None]

    largest = ct.full((TILE_M, 1), -math.inf, dtype=ct.float32)
    denominator = ct.full((TILE_M, 1), 0.0, dtype=ct.float32)
    acc = ct.full((TILE_M, HEAD_DIM), 0.0, dtype=ct.float32)
    for j in range(ct.cdiv((i + 1) * TILE_M, TILE_N)):
        k_tile = ct.load(
            k,
            index=(batch, head, j, 0),
            shape=(1, 1, TILE_N, HEAD_DIM),
            padding_mode=ct.PaddingMode.ZERO,
        )
        k_tile = ct.reshape(k_tile, (TILE_N, HEAD_DIM))
        scores = ct.full((TILE_M, TILE_N), 0.0, dtype=ct.float32)
        scores = ct.mma(q_tile, ct.transpose(k_tile), scores) * scale
        columns = j * TILE_N + ct.arange(TILE_N, dtype=ct.int32)[None, :]
        scores = ct.where(columns <= rows, scores, -math.inf)

        new_largest = ct.maximum(largest, ct.max(scores, axis=1, keepdims=True))
        correction = ct.exp(largest - new_largest)
        weights = ct.exp(scores - new_largest)
        denominator = denominator * correction + ct.sum(weights, axis=1, keepdims=True)
        v_tile = ct.load(
            v,
            index=(batch, head, j, 0),
            shape=(1, 1, TILE_N, HEAD_DIM),
            padding_mode=ct.PaddingMode.ZERO,
        )
        v_tile = ct.reshape(v_tile, (TILE_N, HEAD_DIM))
        acc = ct.mma(weights.astype(v.dtype), v_tile, acc * correction)
        largest = new_largest

    result = (acc / denominator).astype(out.dtype)
    result = ct.reshape(result, (1, 1, TILE_M, HEAD_DIM))
    ct.store(out, index=(batch, head, i, 0), tile=result)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Each query attends to the keys up to its own position.

    All of shape (batch, heads, positions, head dimension), fp16 or bf16; the head dimension is a
    power of two.
    """
    batch, heads, positions, head_dim = q.shape
    out = torch.empty((batch, heads, positions, head_dim), dtype=q.dtype, device=q.device)
    grid = (ct.cdiv(positions, TILE_M), heads, batch)
    arguments = (q, k, v, out, 1 / math.sqrt(head_dim), head_dim, TILE_M, TILE_N)
    ct.launch(torch.cuda.current_stream(), grid, attention_kernel, arguments)
    return out
