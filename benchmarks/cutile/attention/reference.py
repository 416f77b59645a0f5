"""What the attention is timed on, and against."""

from collections.abc import Callable

import torch

CONFIGS = [(4, 32, 2048, 128, torch.bfloat16)]


def inputs(
    batch: int, heads: int, positions: int, head_dim: int, dtype: torch.dtype
) -> tuple[torch.Tensor, ...]:
    """Queries, keys and values of shape (batch, heads, positions, head_dim), standard normal."""
    torch.manual_seed(0)
    shape = (batch, heads, positions, head_dim)
    return tuple(torch.randn(shape, device="cuda", dtype=dtype) for _ in range(3))


def torch_version(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """PyTorch's own, which chooses among its kernels."""
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def flop(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> int:  # noqa: ARG001
    """Two products, of which the causal mask leaves half, as papers on attention count it."""
    return 4 * q.numel() * k.shape[2] // 2


def tilegym(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Callable[[], torch.Tensor]:
    """TileGym's kernel, autotuned on its first call."""
    from tilegym.ops.cutile.attention import tile_fmha

    return lambda: tile_fmha(q, k, v, is_causal=True)


EXPERTS = {"TileGym fmha": tilegym}
