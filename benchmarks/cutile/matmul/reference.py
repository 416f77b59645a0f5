"""What the matrix multiplication is timed on, and against."""

from collections.abc import Callable

import torch

CONFIGS = [(4096, 4096, 4096, torch.bfloat16)]


def inputs(m: int, n: int, k: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """a of shape (m, k) and b of shape (k, n), standard normal."""
    torch.manual_seed(0)
    a = torch.randn(m, k, device="cuda", dtype=dtype)
    return a, torch.randn(k, n, device="cuda", dtype=dtype)


def torch_version(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """PyTorch's own."""
    return a @ b


def flop(a: torch.Tensor, b: torch.Tensor) -> int:
    """A multiplication and an addition for each m, n and k."""
    return 2 * a.shape[0] * a.shape[1] * b.shape[1]


def tilegym(
    a: torch.Tensor, b: torch.Tensor, *, static_persistent: bool = False
) -> Callable[[], torch.Tensor]:
    """TileGym's kernel, autotuned on its first call."""
    from tilegym.ops.cutile.matmul import matmul

    return lambda: matmul(a, b, static_persistent=static_persistent)


EXPERTS = {
    "TileGym matmul": tilegym,
    "TileGym matmul, static_persistent": lambda a, b: tilegym(a, b, static_persistent=True),
}
