"""What the layer normalization is timed on, and against."""

from collections.abc import Callable

import torch

CONFIGS = [(16384, 4096, torch.bfloat16)]
EPS = 1e-5


def inputs(m: int, n: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """x of shape (m, n), a weight and a bias of shape (n,), standard normal."""
    torch.manual_seed(0)
    x = torch.randn(m, n, device="cuda", dtype=dtype)
    weight, bias = (torch.randn(n, device="cuda", dtype=dtype) for _ in range(2))
    return x, weight, bias


def torch_version(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """PyTorch's own."""
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, EPS)


def bytes_moved(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> int:
    """x is read, the result written; weight and bias are read once from memory."""
    return 2 * x.nbytes + weight.nbytes + bias.nbytes


def tilegym(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> Callable[[], torch.Tensor]:
    """TileGym's kernel for any run of dimensions; it also stores mean and rstd."""
    from tilegym.ops.cutile.layer_norm import layer_norm

    return lambda: layer_norm(x, 1, 2, weight, bias, EPS)


def tilegym_persistent(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> Callable[[], torch.Tensor]:
    """TileGym's persistent kernel; it also stores mean and rstd."""
    from tilegym.ops.cutile.layer_norm_legacy import persistent_layer_norm

    return lambda: persistent_layer_norm(x, weight.shape, weight, bias, EPS)[0]


def tilegym_legacy(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> Callable[[], torch.Tensor]:
    """TileGym's older kernel, one row a block; it also stores mean and rstd."""
    from tilegym.ops.cutile.layer_norm_legacy import layer_norm_legacy

    return lambda: layer_norm_legacy(x, weight.shape, weight, bias, EPS)


EXPERTS = {
    "TileGym layer_norm": tilegym,
    "TileGym persistent_layer_norm": tilegym_persistent,
    "TileGym layer_norm_legacy": tilegym_legacy,
}
