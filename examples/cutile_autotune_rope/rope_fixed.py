"""Rotary position embedding in place, in cuTile."""

import cuda.tile as ct
import torch

TILE_S = 64


@ct.kernel
def rope_kernel(x_in, x_out, cos, sin, HALF: ct.Constant[int], TILE_S: ct.Constant[int]):
    """One block rotates TILE_S positions of one head; x_in and x_out may be the same array."""
    batch, head, s = ct.bid(0), ct.bid(1), ct.bid(2)
    shape = (1, 1, TILE_S, HALF)
    c = ct.load(cos, index=(s, 0), shape=(TILE_S, HALF)).astype(ct.float32)
    d = ct.load(sin, index=(s, 0), shape=(TILE_S, HALF)).astype(ct.float32)
    low = ct.load(x_in, index=(batch, head, s, 0), shape=shape).astype(ct.float32)
    high = ct.load(x_in, index=(batch, head, s, 1), shape=shape).astype(ct.float32)
    rotated_low = low * c - high * d
    rotated_high = high * c + low * d
    ct.store(x_out, index=(batch, head, s, 0), tile=rotated_low.astype(x_out.dtype))
    ct.store(x_out, index=(batch, head, s, 1), tile=rotated_high.astype(x_out.dtype))


def rope_(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate x, of shape (B, H, S, D), in place; cos and sin have shape (S, D / 2).

    D is a power of two. Element i of a head is rotated together with element i + D / 2.
    """
    batches, heads, positions, dim = x.shape
    if dim & (dim - 1):
        raise ValueError(f"D is {dim}, and not a power of two")
    grid = (batches, heads, ct.cdiv(positions, TILE_S))
    args = (x, x, cos, sin, dim // 2, TILE_S)
    ct.launch(torch.cuda.current_stream(), grid, rope_kernel, args)
    return x
