"""Batched matrix multiplication with fp32 accumulation, in cuTile."""

import cuda.tile as ct
import torch

TILE_M = 64
TILE_N = 64
TILE_K = 64


@ct.kernel
def bmm_kernel(
    a,
    b,
    c,
    TILE_M: ct.Constant[int],
    TILE_N: ct.Constant[int],
    TILE_K: ct.Constant[int],
):
    """One block computes one TILE_M x TILE_N tile of one product of the batch."""
    batch = ct.bid(0)
    i = ct.bid(1)
    j = ct.bid(2)
    acc = ct.full((TILE_M, TILE_N), 0.0, dtype=ct.float32)
    for k in range(ct.num_tiles(a, axis=2, shape=(1, TILE_M, TILE_K))):
        a_tile = ct.load(
            a,
            index=(batch, i, k),
            shape=(1, TILE_M, TILE_K),
            padding_mode=ct.PaddingMode.ZERO,
        )
        b_tile = ct.load(
            b,
            index=(batch, k, j),
            shape=(1, TILE_K, TILE_N),
            padding_mode=ct.PaddingMode.ZERO,
        )
        a_tile = ct.reshape(a_tile, (TILE_M, TILE_K))
        b_tile = ct.reshape(b_tile, (TILE_K, TILE_N))
        acc = ct.mma(a_tile, b_tile, acc)
    result = ct.reshape(acc.astype(c.dtype), (1, TILE_M, TILE_N))
    ct.store(c, index=(batch, i, j), tile=result)


def bmm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A @ B for fp16 or bf16 matrices of shapes (B, M, K) and (B, K, N)."""
    batch, m, n = a.shape[0], a.shape[1], b.shape[2]
    c = torch.empty((batch, m, n), dtype=a.dtype, device=a.device)
    grid = (batch, ct.cdiv(m, TILE_M), ct.cdiv(n, TILE_N))
    ct.launch(torch.cuda.current_stream(), grid, bmm_kernel, (a, b, c, TILE_M, TILE_N, TILE_K))
    return c
