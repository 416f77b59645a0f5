"""What the rotary position embedding is timed on, and against."""

from collections.abc import Callable

import torch

CONFIGS = [(4, 32, 8, 4096, 128, torch.bfloat16)]
BASE = 10000.0

Pair = tuple[torch.Tensor, torch.Tensor]


def inputs(
    batch: int, q_heads: int, k_heads: int, positions: int, head_dim: int, dtype: torch.dtype
) -> tuple[torch.Tensor, ...]:
    """q and k, standard normal, and the cosines and sines of (positions, head_dim / 2) angles."""
    torch.manual_seed(0)
    q = torch.randn(batch, q_heads, positions, head_dim, device="cuda", dtype=dtype)
    k = torch.randn(batch, k_heads, positions, head_dim, device="cuda", dtype=dtype)
    exponents = torch.arange(0, head_dim, 2, device="cuda", dtype=torch.float64) / head_dim
    steps = torch.arange(positions, device="cuda", dtype=torch.float64)
    angles = steps[:, None] / BASE**exponents
    return q, k, angles.cos().to(dtype), angles.sin().to(dtype)


def torch_version(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Pair:
    """As model code writes it with PyTorch."""

    def rotate(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    return rotate(q), rotate(k)


def bytes_moved(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> int:
    """q and k are read and written; the cosines and sines are read once from memory."""
    return 2 * (q.nbytes + k.nbytes) + cos.nbytes + sin.nbytes


def tilegym(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> Callable[[], Pair]:
    """TileGym's kernel, which works in place and takes cosines and sines of the full width."""
    from tilegym.ops.cutile.rope import apply_rope_base

    both = [torch.cat((half, half), dim=-1)[None] for half in (cos, sin)]
    return lambda: apply_rope_base(q, k, *both)


EXPERTS = {"TileGym apply_rope_base": tilegym}
