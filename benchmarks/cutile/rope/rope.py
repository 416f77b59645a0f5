"""Rotary position embedding of queries and keys, in cuTile."""

import cuda.tile as ct
import torch

TILE_S = 32


@ct.kernel
def rope_kernel(x, cos, sin, y, HALF: ct.Constant[int], TILE_S: ct.Constant[int]):
    """One block rotates TILE_S positions of one head."""
    i = ct.bid(0)
    head = ct.bid(1)
    batch = ct.bid(2)
    cosine = ct.load(cos, index=(i, 0), shape=(TILE_S, HALF), padding_mode=ct.PaddingMode.ZERO)
    sine = ct.load(sin, index=(i, 0), shape=(TILE_S, HALF), padding_mode=ct.PaddingMode.ZERO)
    cosine = cosine.astype(ct.float32)
    sine = sine.astype(ct.float32)
    first = ct.load(
        x,
        index=(batch, head, i, 0),
        shape=(1, 1, TILE_S, HALF),
        padding_mode=ct.PaddingMode.ZERO,
    )
    second = ct.load(
        x,
        index=(batch, head, i, 1),
        shape=(1, 1, TILE_S, HALF),
        padding_mode=ct.PaddingMode.ZERO,
    )
    first = first.astype(ct.float32)
    second = second.astype(ct.float32)
    new_first = first * cosine - second * sine
    new_second = second * cosine + first * sine
    ct.store(y, index=(batch, head, i, 0), tile=new_first.astype(y.dtype))
    ct.store(y, index=(batch, head, i, 1), tile=new_second.astype(y.dtype))


def rope(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate each pair (i, i + D / 2) of the head dimension by the angle of its position.

    `q` and `k` have shape (batch, heads, positions, D), with as many heads as each likes, and D a
    power of two; `cos` and `sin` have shape (positions, D / 2).
    """
    rotated = []
    for x in (q, k):
        batch, heads, positions, head_dim = x.shape
        y = torch.empty((batch, heads, positions, head_dim), dtype=x.dtype, device=x.device)
        grid = (ct.cdiv(positions, TILE_S), heads, batch)
        arguments = (x, cos, sin, y, head_dim // 2, TILE_S)
        ct.launch(torch.cuda.current_stream(), grid, rope_kernel, arguments)
        rotated.append(y)
    return rotated[0], rotated[1]
