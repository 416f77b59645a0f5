"""What the transposition is timed on, and against."""

from collections.abc import Callable

import torch

CONFIGS = [(8192, 8192, torch.bfloat16)]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def inputs(m: int, n: int, dtype: torch.dtype) -> tuple[torch.Tensor]:
    """x of shape (m, n), standard normal."""
    torch.manual_seed(0)
    return (torch.randn(m, n, device=DEVICE, dtype=dtype),)


def torch_version(x: torch.Tensor) -> torch.Tensor:
    """PyTorch's own."""
    return x.t().contiguous()


def bytes_moved(x: torch.Tensor) -> int:
    """Each element is read and written once."""
    return 2 * x.nbytes


def flag_gems(x: torch.Tensor) -> Callable[[], torch.Tensor]:
    """FlagGems' kernel for matrices."""
    from flag_gems.ops import t_copy

    return lambda: t_copy(x)


def flag_gems_contiguous(x: torch.Tensor) -> Callable[[], torch.Tensor]:
    """FlagGems' kernel for a copy between any strides."""
    from flag_gems.ops import contiguous

    return lambda: contiguous(x.t())


EXPERTS = {"FlagGems t_copy": flag_gems, "FlagGems contiguous": flag_gems_contiguous}
