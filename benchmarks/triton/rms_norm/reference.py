"""What the root-mean-square normalization is timed on, and against."""

from collections.abc import Callable

import torch

CONFIGS = [(8192, 16384, torch.bfloat16)]
EPS = 1e-6
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def inputs(m: int, n: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """x of shape (m, n) and a weight of shape (n,), standard normal."""
    torch.manual_seed(0)
    x = torch.randn(m, n, device=DEVICE, dtype=dtype)
    return x, torch.randn(n, device=DEVICE, dtype=dtype)


def torch_version(x: torch.Tensor, weight: torch.Tensor, eps: float = EPS) -> torch.Tensor:
    """PyTorch's own."""
    return torch.nn.functional.rms_norm(x, weight.shape, weight, eps)


def bytes_moved(x: torch.Tensor, weight: torch.Tensor) -> int:
    """x is read, the result written; the weight is read once from memory, then from the cache."""
    return 2 * x.nbytes + weight.nbytes


def liger(x: torch.Tensor, weight: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Liger's kernel, all of it in fp32 as Gemma does; it also stores rstd."""
    from liger_kernel.ops.rms_norm import rms_norm_forward

    return lambda: rms_norm_forward(x, weight, EPS, 0.0, "gemma", False)[0]


def conch(x: torch.Tensor, weight: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Conch's kernel, made for inference."""
    from conch.ops.normalization.rms_norm import rms_norm

    return lambda: rms_norm(x, weight, EPS)


def flag_gems(x: torch.Tensor, weight: torch.Tensor) -> Callable[[], torch.Tensor]:
    """FlagGems' kernel; it also stores rstd."""
    from flag_gems.ops import rms_norm_forward

    return lambda: rms_norm_forward(x, weight.shape, weight, EPS)[0]


EXPERTS = {"Liger rms_norm": liger, "Conch rms_norm": conch, "FlagGems rms_norm": flag_gems}
