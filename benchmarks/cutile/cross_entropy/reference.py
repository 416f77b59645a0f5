"""What the cross entropy is timed on, and against."""

from collections.abc import Callable

import torch

CONFIGS = [(4096, 32000, torch.bfloat16)]


def inputs(m: int, n: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of shape (m, n), standard normal, and m labels."""
    torch.manual_seed(0)
    logits = torch.randn(m, n, device="cuda", dtype=dtype)
    return logits, torch.randint(n, (m,), device="cuda")


def torch_version(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """PyTorch's own. Unlike the kernels it rounds the loss to the type of the logits."""
    return torch.nn.functional.cross_entropy(logits, labels, reduction="none")


def bytes_moved(logits: torch.Tensor, labels: torch.Tensor) -> int:
    """Logits and labels are read once, an fp32 loss for each row written."""
    return logits.nbytes + labels.nbytes + 4 * labels.numel()


def tilegym(logits: torch.Tensor, labels: torch.Tensor) -> Callable[[], torch.Tensor]:
    """TileGym's forward kernel of its Unsloth suite, without the reduction over the rows.

    Its Liger suite has another, whose wrapper waits for the GPU to count the labels.
    """
    from tilegym.suites.unsloth.cutile.cross_entropy_loss import _Fast_CrossEntropyLoss_CT

    return lambda: _Fast_CrossEntropyLoss_CT.apply(logits, labels)


EXPERTS = {"TileGym unsloth.cross_entropy_loss": tilegym}
