"""What the root-mean-square normalization is timed on, and against."""

from collections.abc import Callable

import torch

CONFIGS = [(16384, 4096, torch.bfloat16)]
EPS = 1e-6


def inputs(m: int, n: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """x of shape (m, n) and a weight of shape (n,), standard normal."""
    torch.manual_seed(0)
    x = torch.randn(m, n, device="cuda", dtype=dtype)
    return x, torch.randn(n, device="cuda", dtype=dtype)


def torch_version(x: torch.Tensor, weight: torch.Tensor, eps: float = EPS) -> torch.Tensor:
    """PyTorch's own."""
    return torch.nn.functional.rms_norm(x, weight.shape, weight, eps)


def bytes_moved(x: torch.Tensor, weight: torch.Tensor) -> int:
    """x is read, the result written; the weight is read once from memory, then from the cache."""
    return 2 * x.nbytes + weight.nbytes


def tilegym(
    x: torch.Tensor, weight: torch.Tensor, mode: str | None = None
) -> Callable[[], torch.Tensor]:
    """TileGym's kernel; without a mode it chooses one by the shape."""
    from tilegym.ops.cutile.rms_norm import rms_norm

    return lambda: rms_norm(x, weight.shape, weight, EPS, mode=mode)


EXPERTS = {
    "TileGym rms_norm": tilegym,
    "TileGym rms_norm, multi_wave_cached": lambda x, w: tilegym(x, w, "multi_wave_cached"),
    "TileGym rms_norm, multi_wave_reload": lambda x, w: tilegym(x, w, "multi_wave_reload"),
}
