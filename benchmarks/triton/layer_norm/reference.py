"""What the layer normalization is timed on, and against."""

from collections.abc import Callable

import torch

CONFIGS = [(8192, 8192, torch.bfloat16)]
EPS = 1e-5
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def inputs(m: int, n: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """x of shape (m, n), a weight and a bias of shape (n,), standard normal."""
    torch.manual_seed(0)
    x = torch.randn(m, n, device=DEVICE, dtype=dtype)
    weight, bias = (torch.randn(n, device=DEVICE, dtype=dtype) for _ in range(2))
    return x, weight, bias


def torch_version(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """PyTorch's own."""
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, EPS)


def bytes_moved(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> int:
    """x is read, the result written; weight and bias are read once from memory."""
    return 2 * x.nbytes + weight.nbytes + bias.nbytes


def liger(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Liger's kernel, which holds a row whole; it also stores mean and rstd."""
    from liger_kernel.ops.layer_norm import layer_norm_forward

    return lambda: layer_norm_forward(x, weight, bias, EPS)[0]


def fla(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Flash-linear-attention's kernel, which holds a row whole; it also stores mean and rstd."""
    from fla.modules.norm.layernorm import layer_norm_fwd

    return lambda: layer_norm_fwd(x, weight, bias, EPS)[0]


def flag_gems(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> Callable[[], torch.Tensor]:
    """FlagGems' kernel; it also stores mean and rstd."""
    from flag_gems.ops import layer_norm

    return lambda: layer_norm(x, weight.shape, weight, bias, EPS)[0]


EXPERTS = {"Liger layer_norm": liger, "fla layer_norm": fla, "FlagGems layer_norm": flag_gems}
