"""What SiLU and multiplication is timed on, and against."""

from collections.abc import Callable

import torch

CONFIGS = [(8192, 14336, torch.bfloat16)]


def inputs(m: int, n: int, dtype: torch.dtype) -> tuple[torch.Tensor]:
    """x of shape (m, 2 * n), standard normal."""
    torch.manual_seed(0)
    return (torch.randn(m, 2 * n, device="cuda", dtype=dtype),)


def torch_version(x: torch.Tensor) -> torch.Tensor:
    """PyTorch's own, in two steps."""
    gate, up = x.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up


def bytes_moved(x: torch.Tensor) -> int:
    """x is read, a result of half its size written."""
    return x.nbytes * 3 // 2


def tilegym(x: torch.Tensor) -> Callable[[], torch.Tensor]:
    """TileGym's kernel, one row a block, autotuned on its first call."""
    from tilegym.ops.cutile.silu_and_mul import silu_and_mul

    return lambda: silu_and_mul(x)


EXPERTS = {"TileGym silu_and_mul": tilegym}
