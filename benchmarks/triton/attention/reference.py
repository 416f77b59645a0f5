"""What the attention is timed on, and against."""

from collections.abc import Callable

import torch

CONFIGS = [(4, 32, 2048, 128, torch.bfloat16)]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def inputs(
    batch: int, heads: int, positions: int, head_dim: int, dtype: torch.dtype
) -> tuple[torch.Tensor, ...]:
    """Queries, keys and values of shape (batch, heads, positions, head_dim), standard normal."""
    torch.manual_seed(0)
    shape = (batch, heads, positions, head_dim)
    return tuple(torch.randn(shape, device=DEVICE, dtype=dtype) for _ in range(3))


def torch_version(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """PyTorch's own, which chooses among its kernels; none of them is written in Triton."""
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def flop(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> int:  # noqa: ARG001
    """Two products, of which the causal mask leaves half, as papers on attention count it."""
    return 4 * q.numel() * k.shape[2] // 2


def fla(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Flash-linear-attention's kernel, which wants the positions before the heads.

    The inputs are brought into that order before, the result is seen in ours without a copy.
    """
    from fla.ops.attn.parallel import parallel_attn_fwd

    q, k, v = (x.transpose(1, 2).contiguous() for x in (q, k, v))
    scale = q.shape[-1] ** -0.5
    return lambda: parallel_attn_fwd(q, k, v, None, None, scale)[0].transpose(1, 2)


def flex_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Callable[[], torch.Tensor]:
    """PyTorch's FlexAttention, a Triton template, told to skip what the mask leaves out."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    positions = q.shape[2]
    mask = create_block_mask(
        lambda _batch, _head, row, column: column <= row, None, None, positions, positions, q.device
    )
    call = torch.compile(flex_attention, dynamic=False)
    return lambda: call(q, k, v, block_mask=mask)


EXPERTS = {"PyTorch flex_attention": flex_attention, "fla parallel_attn": fla}
