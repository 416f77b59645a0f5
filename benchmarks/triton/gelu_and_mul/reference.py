"""What GELU and multiplication is timed on, and against."""

from collections.abc import Callable

import torch

CONFIGS = [(8192, 14336, torch.bfloat16)]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def inputs(m: int, n: int, dtype: torch.dtype) -> tuple[torch.Tensor]:
    """x of shape (m, 2 * n), standard normal."""
    torch.manual_seed(0)
    return (torch.randn(m, 2 * n, device=DEVICE, dtype=dtype),)


def torch_version(x: torch.Tensor) -> torch.Tensor:
    """PyTorch's own, in two steps."""
    gate, up = x.chunk(2, dim=-1)
    return torch.nn.functional.gelu(gate, approximate="tanh") * up


def bytes_moved(x: torch.Tensor) -> int:
    """x is read, a result of half its size written."""
    return x.nbytes * 3 // 2


def liger(x: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Liger's kernel, which takes the halves as matrices of their own."""
    from liger_kernel.ops.geglu import geglu_forward

    gate, up = (half.contiguous() for half in x.chunk(2, dim=-1))
    return lambda: geglu_forward(gate, up)[2]


def conch(x: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Conch's kernel, made for inference."""
    from conch.ops.activation.gelu_tanh_and_mul import gelu_tanh_and_mul

    return lambda: gelu_tanh_and_mul(x)


def flag_gems(x: torch.Tensor) -> Callable[[], torch.Tensor]:
    """FlagGems' kernel, which takes the halves as matrices."""
    from flag_gems.fused import gelu_and_mul

    gate, up = x.chunk(2, dim=-1)
    return lambda: gelu_and_mul(gate, up, "tanh")


EXPERTS = {
    "Liger geglu": liger,
    "Conch gelu_tanh_and_mul": conch,
    "FlagGems gelu_and_mul": flag_gems,
}
