"""What the normalization of queries or keys is timed on, and against."""

from collections.abc import Callable

import torch

CONFIGS = [(16384, 32, 128, torch.bfloat16)]
EPS = 1e-6
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def inputs(
    tokens: int, heads: int, head_dim: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """x of shape (tokens, heads, head_dim) and a weight of shape (head_dim,), standard normal."""
    torch.manual_seed(0)
    x = torch.randn(tokens, heads, head_dim, device=DEVICE, dtype=dtype)
    return x, torch.randn(head_dim, device=DEVICE, dtype=dtype)


def torch_version(x: torch.Tensor, weight: torch.Tensor, eps: float = EPS) -> torch.Tensor:
    """PyTorch's own."""
    return torch.nn.functional.rms_norm(x, weight.shape, weight, eps)


def bytes_moved(x: torch.Tensor, weight: torch.Tensor) -> int:
    """x is read, the result written; the weight is read once from memory, then from the cache."""
    return 2 * x.nbytes + weight.nbytes


def liger(x: torch.Tensor, weight: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Liger's kernel for many short rows, 16 a program, in fp32 as Gemma does; stores rstd too."""
    from liger_kernel.ops.rms_norm import rms_norm_forward

    return lambda: rms_norm_forward(x, weight, EPS, 0.0, "gemma", False)[0]


def fla(x: torch.Tensor, weight: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Flash-linear-attention's kernel for short rows, which tunes their number a program.

    It takes a matrix and also stores rstd; the result is seen in the shape of x without a copy.
    """
    from fla.modules.norm.layernorm import layer_norm_fwd

    rows = x.view(-1, x.shape[-1])
    return lambda: layer_norm_fwd(rows, weight, None, EPS, is_rms_norm=True)[0].view(x.shape)


def flag_gems(x: torch.Tensor, weight: torch.Tensor) -> Callable[[], torch.Tensor]:
    """FlagGems' kernel, a row a program; it also stores rstd."""
    from flag_gems.ops import rms_norm_forward

    return lambda: rms_norm_forward(x, weight.shape, weight, EPS)[0]


EXPERTS = {"Liger rms_norm": liger, "fla rms_norm": fla, "FlagGems rms_norm": flag_gems}
