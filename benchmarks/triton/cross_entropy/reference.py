"""What the cross entropy is timed on, and against."""

from collections.abc import Callable

import torch

CONFIGS = [(4096, 128256, torch.bfloat16)]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def inputs(m: int, n: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of shape (m, n), standard normal, and m labels."""
    torch.manual_seed(0)
    logits = torch.randn(m, n, device=DEVICE, dtype=dtype)
    return logits, torch.randint(n, (m,), device=DEVICE)


def torch_version(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """PyTorch's own. Unlike the kernels it rounds the loss to the type of the logits."""
    return torch.nn.functional.cross_entropy(logits, labels, reduction="none")


def bytes_moved(logits: torch.Tensor, labels: torch.Tensor) -> int:
    """Logits and labels are read once, an fp32 loss for each row written."""
    return logits.nbytes + labels.nbytes + 4 * labels.numel()


def fla(logits: torch.Tensor, labels: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Flash-linear-attention's kernel, which also stores the log of the denominators."""
    from fla.modules.fused_cross_entropy.ops import cross_entropy_fwd

    return lambda: cross_entropy_fwd(logits, labels)[0]


def flag_gems(logits: torch.Tensor, labels: torch.Tensor) -> Callable[[], torch.Tensor]:
    """FlagGems' kernel, tuned on its first call; it also stores the weights of the labels."""
    from flag_gems.fused import cross_entropy_loss

    return lambda: cross_entropy_loss(logits, labels, reduction="none")


# Liger's has a wrapper that waits for the GPU to count the labels.
EXPERTS = {"fla cross_entropy": fla, "FlagGems cross_entropy_loss": flag_gems}
