"""What softmax is timed on, and against."""

from collections.abc import Callable

import torch

CONFIGS = [(16384, 4096, torch.bfloat16)]


def inputs(m: int, n: int, dtype: torch.dtype) -> tuple[torch.Tensor]:
    """x of shape (m, n), standard normal."""
    torch.manual_seed(0)
    return (torch.randn(m, n, device="cuda", dtype=dtype),)


def torch_version(x: torch.Tensor) -> torch.Tensor:
    """PyTorch's own."""
    return torch.softmax(x, dim=-1)


def bytes_moved(x: torch.Tensor) -> int:
    """Each element is read and written once."""
    return 2 * x.nbytes


def tilegym(x: torch.Tensor, **options: bool) -> Callable[[], torch.Tensor]:
    """TileGym's kernel that reads with gather, unless told otherwise."""
    from tilegym.ops.cutile.softmax import softmax

    return lambda: softmax(x, **options)


EXPERTS = {
    "TileGym softmax": tilegym,
    "TileGym softmax, use_tma": lambda x: tilegym(x, use_tma=True),
    "TileGym softmax, use_multi_wave": lambda x: tilegym(x, use_multi_wave=True),
}
