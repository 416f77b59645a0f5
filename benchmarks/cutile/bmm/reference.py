"""What the batched matrix multiplication is timed on, and against."""

from collections.abc import Callable

import torch

CONFIGS = [(8, 2048, 2048, 2048, torch.float16)]


def inputs(
    batch: int, m: int, n: int, k: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """a of shape (batch, m, k) and b of shape (batch, k, n), standard normal."""
    torch.manual_seed(0)
    a = torch.randn(batch, m, k, device="cuda", dtype=dtype)
    return a, torch.randn(batch, k, n, device="cuda", dtype=dtype)


def torch_version(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """PyTorch's own."""
    return torch.bmm(a, b)


def flop(a: torch.Tensor, b: torch.Tensor) -> int:
    """A multiplication and an addition for each m, n and k of each product."""
    return 2 * a.numel() * b.shape[2]


def tilegym(
    a: torch.Tensor, b: torch.Tensor, *, static_persistent: bool = True
) -> Callable[[], torch.Tensor]:
    """TileGym's kernel; the persistent one is autotuned on its first call."""
    from tilegym.ops.cutile.bmm import bmm

    return lambda: bmm(a, b, static_persistent=static_persistent)


EXPERTS = {
    "TileGym bmm": tilegym,
    "TileGym bmm, not persistent": lambda a, b: tilegym(a, b, static_persistent=False),
}
