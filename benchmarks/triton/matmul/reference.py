"""What the matrix multiplication is timed on, and against."""

from collections.abc import Callable

import torch

CONFIGS = [(4096, 4096, 4096, torch.bfloat16)]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def inputs(m: int, n: int, k: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """a of shape (m, k) and b of shape (k, n), standard normal."""
    torch.manual_seed(0)
    a = torch.randn(m, k, device=DEVICE, dtype=dtype)
    return a, torch.randn(k, n, device=DEVICE, dtype=dtype)


def torch_version(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """PyTorch's own."""
    return a @ b


def flop(a: torch.Tensor, b: torch.Tensor) -> int:
    """A multiplication and an addition for each m, n and k."""
    return 2 * a.shape[0] * a.shape[1] * b.shape[1]


def inductor(a: torch.Tensor, b: torch.Tensor) -> Callable[[], torch.Tensor]:
    """The Triton template of PyTorch's own compiler, autotuned."""
    options = {"max_autotune": True, "max_autotune_gemm_backends": "TRITON"}
    call = torch.compile(torch_version, dynamic=False, options=options)
    return lambda: call(a, b)


def fla(a: torch.Tensor, b: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Flash-linear-attention's kernel, tuned on its first call."""
    from fla.ops.utils.matmul import matmul

    return lambda: matmul(a, b)


def flag_gems(a: torch.Tensor, b: torch.Tensor) -> Callable[[], torch.Tensor]:
    """FlagGems' portable kernel, tuned on its first call.

    The one that `flag_gems.mm` takes on a Hopper GPU tries some two hundred configs then.
    """
    from flag_gems.ops import mm

    return lambda: mm(a, b)


EXPERTS = {"Inductor's Triton template": inductor, "fla matmul": fla, "FlagGems mm": flag_gems}
