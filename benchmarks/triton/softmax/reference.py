"""What softmax is timed on, and against."""

from collections.abc import Callable

import torch

CONFIGS = [(4096, 32768, torch.bfloat16)]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def inputs(m: int, n: int, dtype: torch.dtype) -> tuple[torch.Tensor]:
    """x of shape (m, n), standard normal."""
    torch.manual_seed(0)
    return (torch.randn(m, n, device=DEVICE, dtype=dtype),)


def torch_version(x: torch.Tensor) -> torch.Tensor:
    """PyTorch's own."""
    return torch.softmax(x, dim=-1)


def bytes_moved(x: torch.Tensor) -> int:
    """Each element is read and written once."""
    return 2 * x.nbytes


def liger(x: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Liger's kernel: a row a program, warps by its length."""
    from liger_kernel.ops.softmax import LigerSoftmaxFunction

    return lambda: LigerSoftmaxFunction.apply(x)


def flag_gems(x: torch.Tensor) -> Callable[[], torch.Tensor]:
    """FlagGems' kernel."""
    from flag_gems.ops import softmax

    return lambda: softmax(x, -1)


EXPERTS = {"Liger softmax": liger, "FlagGems softmax": flag_gems}
