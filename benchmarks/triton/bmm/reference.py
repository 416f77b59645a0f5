"""What the batched matrix multiplication is timed on, and against."""

from collections.abc import Callable

import torch

CONFIGS = [(8, 2048, 2048, 2048, torch.float16)]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def inputs(
    batch: int, m: int, n: int, k: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """a of shape (batch, m, k) and b of shape (batch, k, n), standard normal."""
    torch.manual_seed(0)
    a = torch.randn(batch, m, k, device=DEVICE, dtype=dtype)
    return a, torch.randn(batch, k, n, device=DEVICE, dtype=dtype)


def torch_version(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """PyTorch's own."""
    return torch.bmm(a, b)


def flop(a: torch.Tensor, b: torch.Tensor) -> int:
    """A multiplication and an addition for each m, n and k of each product."""
    return 2 * a.numel() * b.shape[2]


def inductor(a: torch.Tensor, b: torch.Tensor) -> Callable[[], torch.Tensor]:
    """The Triton template of PyTorch's own compiler, autotuned."""
    options = {"max_autotune": True, "max_autotune_gemm_backends": "TRITON"}
    call = torch.compile(torch_version, dynamic=False, options=options)
    return lambda: call(a, b)


def flag_gems(a: torch.Tensor, b: torch.Tensor) -> Callable[[], torch.Tensor]:
    """FlagGems' kernel, tuned on its first call."""
    from flag_gems.ops import bmm

    return lambda: bmm(a, b)


EXPERTS = {"Inductor's Triton template": inductor, "FlagGems bmm": flag_gems}
